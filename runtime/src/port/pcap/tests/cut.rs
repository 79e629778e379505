//! Captures that end early: whole packets come out, the rest is said, nothing fails.

use super::super::CaptureError;
use super::{build, drain, reader};

#[test]
fn a_cut_anywhere_leaves_a_prefix() {
    // Goal: a capture cut anywhere gives its whole packets and says where it broke. Method: all cuts of all kinds.
    for capture in build::all() {
        for cut in 0..capture.bytes.len() {
            let at = format!("{} cut at {cut}", capture.what);
            let opened = reader(&capture.bytes[..cut]);
            if cut < capture.header {
                match opened.err() {
                    Some(CaptureError::Empty { .. }) => assert_eq!(cut, 0, "{at}"),
                    Some(CaptureError::NotACapture { .. }) => assert!((1..4).contains(&cut), "{at}"),
                    Some(CaptureError::HeaderCut { .. }) => assert!(cut >= 4, "{at}"),
                    other => panic!("{at}: {other:?}"),
                }
                continue;
            }
            let heard = drain(opened.expect("a whole header opens"));
            assert!(heard.error.is_none(), "{at}: {heard:?}");
            assert!(capture.packets.starts_with(&heard.packets), "{at}: {heard:?}");
            let whole =
                capture.ends.iter().copied().filter(|end| *end <= cut).max().expect("the header is whole");
            match heard.truncated {
                None => assert_eq!(cut, whole, "{at}: it must be said"),
                Some(truncated) => {
                    assert_eq!(
                        (truncated.offset, truncated.left),
                        (whole as u64, (cut - whole) as u64),
                        "{at}"
                    );
                    assert!(truncated.left > 0 && !truncated.gzip, "{at}");
                    assert!(truncated.to_string().contains(&format!("byte {whole}")), "{truncated}");
                }
            }
        }
    }
}

#[test]
fn a_cut_gzip_stream_leaves_a_prefix() {
    // Goal: the same for a compressed capture. Method: all cuts of one capture in one and in two members.
    let capture = build::sections(build::Order::Little);
    let (front, back) = capture.bytes.split_at(capture.header + 21);
    for packed in [build::gzip(&capture.bytes), [build::gzip(front), build::gzip(back)].concat()] {
        for cut in 0..packed.len() {
            match reader(&packed[..cut]) {
                Err(
                    CaptureError::Empty { .. }
                    | CaptureError::NotACapture { .. }
                    | CaptureError::HeaderCut { .. },
                ) => {}
                Err(error) => panic!("cut at {cut}: {error}"),
                Ok(reader) => {
                    let heard = drain(reader);
                    assert!(heard.error.is_none(), "cut at {cut}: {heard:?}");
                    assert!(capture.packets.starts_with(&heard.packets), "cut at {cut}");
                    assert!(heard.truncated.is_some(), "cut at {cut}: it must be said");
                }
            }
        }
    }
}

#[test]
fn a_cut_gzip_checksum_is_told() {
    // Goal: all packets are there but gzip's last bytes are not: that is said. Method: cut the last byte.
    let capture = build::sections(build::Order::Little);
    let packed = build::gzip(&capture.bytes);
    let heard = drain(reader(&packed[..packed.len() - 1]).expect("the capture opens"));
    assert_eq!(heard.packets, capture.packets);
    let truncated = heard.truncated.expect("it is cut");
    assert!(truncated.gzip && truncated.left == 0, "{truncated:?}");
    assert!(truncated.to_string().starts_with("its gzip stream is cut off behind"), "{truncated}");
}
