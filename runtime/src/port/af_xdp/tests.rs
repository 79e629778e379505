//! What needs no interface: options and sentences. The rest is in `tests/ports/af_xdp.rs`.

use std::io;

use super::errors::{Step, explain};
use super::{Options, PortSpec};

fn options(text: &str) -> Result<Options, String> {
    let spec = PortSpec::parse(text).map_err(|error| error.to_string())?;
    Options::parse(&spec).map_err(|error| error.to_string())
}

#[test]
fn options_are_read_and_bounded() {
    // Goal: what a person writes is what is meant, and nonsense is refused. Method: defaults, each option, wrong values.
    assert_eq!(options("af_xdp:x"), Ok(Options { queue: 0, mode: 0, frames: 4_096 }));
    let all = options("af_xdp:x,queue=3,mode=copy,frames=64");
    assert_eq!(all, Ok(Options { queue: 3, mode: libc::XDP_COPY, frames: 64 }));
    let zero_copy = options("af_xdp:x,mode=zerocopy").expect("well formed");
    assert_eq!(zero_copy.mode, libc::XDP_ZEROCOPY);
    for (wrong, part) in [
        ("af_xdp:x,ring=1", "there are queue, mode, frames"),
        ("af_xdp:x,mode=fast", "give auto, copy or zerocopy"),
        ("af_xdp:x,frames=100", "power of two"),
        ("af_xdp:x,frames=32", "from 64"),
        ("af_xdp:x,frames=524288", "to 262144"),
        ("af_xdp:x,queue=65536", "0 to 65535"),
    ] {
        let sentence = options(wrong).expect_err("refused");
        assert!(sentence.contains(part), "{wrong}: {sentence}");
    }
}

#[test]
fn every_error_names_problem_and_way_out() {
    // Goal: an error number becomes a sentence that helps. Method: the numbers of the kernel that no test can provoke on
    // a veth, at the steps where they come.
    let spec = PortSpec::parse("af_xdp:eth7,queue=2").expect("well formed");
    let options = Options::parse(&spec).expect("well formed");
    for (step, code, part) in [
        (Step::Socket, libc::EPERM, "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF is missing"),
        (Step::Program, libc::EPERM, "`setcap cap_net_raw,cap_net_admin,cap_bpf+ep`"),
        (Step::Interface, libc::ENODEV, "there is no interface `eth7`"),
        (Step::Socket, libc::EAFNOSUPPORT, "no AF_XDP: take the port af_packet"),
        (Step::Memory, libc::ENOBUFS, "may not lock 16384 KiB of memory: raise the limit with `ulimit -l`"),
        (Step::Bind, libc::EINVAL, "`eth7` has no queue 2: `ethtool -l eth7`"),
        (Step::Bind, libc::EOPNOTSUPP, "without copying: leave out mode=zerocopy"),
        (Step::Attach, libc::EEXIST, "another XDP program is attached to `eth7`"),
        (Step::Attach, libc::ENOSPC, "look at `ip -d link show eth7`"),
    ] {
        let sentence = explain(&spec, &options, step, &io::Error::from_raw_os_error(code)).to_string();
        assert!(sentence.starts_with("af_xdp:eth7,queue=2: ") && sentence.contains(part), "{sentence}");
    }
}
