//! What the ports on network interfaces have in common: the words for what the kernel refuses.

use std::io;
use std::os::fd::AsFd;

use super::sys::{self, Request};
use super::{PortError, PortSpec};

/// Refuses names that no interface can have.
///
/// # Errors
/// No name, or one of more than 15 bytes.
pub(super) fn check_name(spec: &PortSpec) -> Result<(), PortError> {
    const LONGEST: usize = libc::IFNAMSIZ - 1;
    match spec.name.len() {
        0 => Err(spec.error("no interface is named", format!("write {}:interface", spec.kind))),
        1..=LONGEST => Ok(()),
        length => Err(spec.error(
            format!("the name of the interface has {length} bytes"),
            format!("{LONGEST} are the most that Linux allows"),
        )),
    }
}

/// The sentence about an `error` of the kernel when a port is opened that needs the right `right`.
pub(super) fn refused(spec: &PortSpec, right: &str, error: &io::Error) -> PortError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => spec.error(
            format!("the right {right} is missing"),
            format!("run as root, or once `setcap {}+ep` on the program", right.to_lowercase()),
        ),
        Some(libc::ENODEV) => spec
            .error(format!("there is no interface `{}`", spec.name), "`ip link` lists those that there are"),
        _ => spec.error(
            format!("the kernel refuses it ({error})"),
            format!("look at `ip -d link show {}`", spec.name),
        ),
    }
}

/// The sentence about an interface that was deleted while a port was open on it.
pub(super) fn gone(spec: &PortSpec) -> PortError {
    spec.error("the interface was deleted", "make it again and open the port anew")
}

/// The longest packet behind the Ethernet header that an interface takes now.
pub(super) fn mtu(socket: &impl AsFd, name: &str) -> io::Result<usize> {
    sys::interface(socket, name, Request::Mtu).map(|mtu| mtu.unsigned_abs() as usize)
}

/// Why a frame could not be sent, in the words of the counters.
pub(super) fn send_drop(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => TOO_LONG,
        Some(libc::ENETDOWN | libc::EIO) => "interface_down",
        Some(libc::ENXIO | libc::ENODEV | libc::EBADFD) => "interface_deleted",
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => "no_room_to_send",
        Some(libc::EINVAL) => "not_ethernet",
        _ => "refused_by_kernel",
    }
}

/// Why a frame is not sent that is longer than the interface's MTU allows.
pub(super) const TOO_LONG: &str = "longer_than_mtu";
/// Why a frame was lost that the kernel had no room for, or could not describe.
pub(super) const OVERRUN: &str = "ring_full";

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(number: i32) -> String {
        let spec = PortSpec::parse("af_packet:veth0").expect("well formed");
        refused(&spec, "CAP_NET_RAW", &io::Error::from_raw_os_error(number)).to_string()
    }

    #[test]
    fn each_refusal_names_the_way_out() {
        // Goal: a person knows what to do. Method: the sentences for the errors that a person can mend.
        assert_eq!(
            refusal(libc::EPERM),
            "af_packet:veth0: the right CAP_NET_RAW is missing: run as root, or once `setcap cap_net_raw+ep` on \
             the program"
        );
        assert_eq!(
            refusal(libc::ENODEV),
            "af_packet:veth0: there is no interface `veth0`: `ip link` lists those that there are"
        );
        assert!(refusal(libc::EBUSY).ends_with("look at `ip -d link show veth0`"));
    }

    #[test]
    fn names_end_where_the_kernel_cuts_them() {
        // Goal: no other interface is opened than the named one. Method: names around the bound, and none.
        for (name, length) in
            [("tap", 0), ("tap:", 0), ("tap:123456789012345", 15), ("tap:1234567890123456", 16)]
        {
            let spec = PortSpec::parse(name).expect("well formed");
            assert_eq!(check_name(&spec).is_ok(), length == 15, "{name}");
        }
    }
}
