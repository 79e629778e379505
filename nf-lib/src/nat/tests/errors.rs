//! Tests of translated ICMP errors.

use super::*;

const ROUTER: [u8; 4] = [198, 51, 100, 9];

/// An error from `from` to `to` about a frame without VLAN tags, quoting `len` bytes of its IP packet at most.
fn error(from: [u8; 4], to: impl Into<Ipv4Addr>, kind: (u8, u8), about: &[u8], len: usize) -> Vec<u8> {
    let quoted = &about[14..about.len().min(14 + len)];
    FrameBuilder::ipv4(from, to).icmp(kind.0, kind.1, [0; 4], quoted)
}

/// The IPv4 packet that an error quotes, as a frame.
fn quoted(error: &[u8]) -> Vec<u8> {
    [&error[..14], &error[42..]].concat()
}

#[test]
fn rfc5508_r4_an_error_from_outside_reaches_the_sender() {
    // Goal: case 1, all four checksums are right. Method: time exceeded about each protocol; the quote is what the
    // host had sent, byte by byte, and no mapping has ended.
    let frames = [
        to(SERVER).icmp_echo_request(77, 3, b"trace"),
        to(SERVER).udp(5_000, 33_434, b"trace"),
        to(SERVER).tcp(5_000, 80, SYN, b"trace"),
    ];
    for frame in frames {
        let mut harness = harness(|_| ());
        let (sent, port) = translated(&mut harness, &frame);
        let outcome = harness.inbound(&error(ROUTER, EXTERNAL, (11, 0), &sent, 576));
        assert!(!outcome.wrote, "errors refresh nothing (RFC 5508 R6)");
        let received = outcome.forwarded();
        assert_checksums(&received);
        assert_checksums(&quoted(&received));
        assert_eq!(received[42..], frame[14..]);
        assert_eq!(Flow::parse(&received).expect("well-formed").destination(), IpAddr::from(HOST));
        assert_eq!(translated(&mut harness, &frame).1, port);
    }
}

#[test]
fn rfc5508_r5_an_error_from_inside_shows_no_inside_address() {
    // Goal: quote and sender are translated outwards. Method: a port unreachable of the host and of a router inside.
    let mut harness = harness(|_| ());
    let (sent, _) = translated(&mut harness, &to(SERVER).udp(5_000, 53, b""));
    let answer = answer(&sent);
    let received = harness.inbound(&answer).forwarded();
    for from in [HOST, [192, 168, 0, 1]] {
        let outcome = harness.outbound(&error(from, SERVER, (3, 3), &received, 576));
        assert!(!outcome.wrote);
        let left = outcome.forwarded();
        assert_checksums(&left);
        assert_checksums(&quoted(&left));
        assert_eq!(left[42..], answer[14..]);
        assert_eq!(Flow::parse(&left).expect("well-formed").source(), IpAddr::from(EXTERNAL));
    }
}

#[test]
fn rfc5508_r3_damaged_errors_are_dropped_unchanged() {
    // Goal: checks come before changes. Method: damage the message, the quoted header, the quoted L4 checksum.
    let mut harness = harness(|_| ());
    let (sent, _) = translated(&mut harness, &to(SERVER).udp(5_000, 53, b"data"));
    let good = error(ROUTER, EXTERNAL, (3, 1), &sent, 576);
    let mut damaged = good.clone();
    damaged[70] ^= 1;
    let outcome = harness.inbound(&damaged);
    assert_eq!((outcome.reason(), &outcome.frame), (Some("bad_icmp_checksum"), &damaged));
    let mut wrong = sent.clone();
    wrong[24] ^= 1;
    let outcome = harness.inbound(&error(ROUTER, EXTERNAL, (3, 1), &wrong, 576));
    assert_eq!(outcome.reason(), Some("bad_quoted_checksum"));
    let mut offloaded = sent.clone();
    offloaded[40] ^= 1;
    let outcome = harness.inbound(&error(ROUTER, EXTERNAL, (3, 1), &offloaded, 576));
    assert_eq!(outcome.reason(), None, "the quoted L4 checksum is not looked at (RFC 5508 R3c)");
}

#[test]
fn a_quote_of_eight_bytes_suffices_and_seven_do_not() {
    // Goal: case 2. Method: fragmentation needed with 20 + 8 and with 20 + 7 bytes of a TCP segment.
    let mut harness = harness(|_| ());
    let frame = to(SERVER).tcp(5_000, 80, ACK, b"data");
    let (sent, _) = translated(&mut harness, &frame);
    let received = harness.inbound(&error(ROUTER, EXTERNAL, (3, 4), &sent, 28)).forwarded();
    assert_checksums(&received);
    assert_eq!(received[42..], frame[14..42]);
    let short = harness.inbound(&error(ROUTER, EXTERNAL, (3, 4), &sent, 27));
    assert_eq!(short.reason(), Some("truncated_icmp_quote"));
}

#[test]
fn a_quoted_datagram_without_checksum_keeps_none() {
    // Goal: case 4. Method: an error about a translated datagram whose UDP checksum is 0.
    let mut harness = harness(|_| ());
    let mut frame = to(SERVER).udp(5_000, 53, b"data");
    frame[40..42].fill(0);
    let (sent, _) = translated(&mut harness, &frame);
    assert_eq!(sent[40..42], [0, 0]);
    let received = harness.inbound(&error(ROUTER, EXTERNAL, (3, 3), &sent, 576)).forwarded();
    assert_checksums(&received);
    assert_eq!(received[42..], frame[14..]);
}

#[test]
fn errors_about_nothing_we_sent_are_dropped() {
    // Goal: no error opens a way in. Method: errors about unmapped flows, to others than the sender, about fragments.
    let mut harness = harness(|_| ());
    let (sent, port) = translated(&mut harness, &to(SERVER).udp(5_000, 53, b""));
    let strange = FrameBuilder::ipv4(EXTERNAL, SERVER).udp(port ^ 1, 53, b"");
    let later = FrameBuilder::ipv4(EXTERNAL, SERVER).fragment(1, 8, false).raw(17, &[0; 8]);
    let reply = FrameBuilder::ipv4(EXTERNAL, SERVER).icmp_echo_reply(1, 1, b"");
    let cases = [
        (error(ROUTER, EXTERNAL, (3, 1), &strange, 576), "no_mapping"),
        (error(ROUTER, EXTERNAL, (3, 1), &reply, 576), "no_mapping"),
        (error(ROUTER, HOST, (3, 1), &sent, 576), "unrelated_icmp_error"),
        (error(ROUTER, EXTERNAL, (3, 1), &later, 576), "fragment_unsupported"),
    ];
    for (frame, reason) in cases {
        assert_eq!(harness.inbound(&frame).reason(), Some(reason));
    }
}
