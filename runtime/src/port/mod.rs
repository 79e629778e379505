//! Where frames come from and go to.

pub mod pcap;
