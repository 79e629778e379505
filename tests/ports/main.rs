//! Ports on real interfaces: veth pairs and TAPs in network namespaces that the tests make for themselves.

mod af_packet;
#[cfg(feature = "dpdk")]
mod dpdk;
mod netns;
mod tap;
mod traffic;
