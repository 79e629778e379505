//! Ports on real interfaces: veth pairs and TAPs in network namespaces that the tests make for themselves.

mod af_packet;
mod af_xdp;
mod chain;
#[cfg(feature = "dpdk")]
mod dpdk;
mod netns;
mod queues;
mod tap;
mod traffic;
