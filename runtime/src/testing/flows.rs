//! Networks with an inside and an outside, and the flows between them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;
use proptest::sample::select;

use super::shrink::plain_first;
use super::{Trace, TraceFrame};
use crate::clock::{Nanos, SECOND};
use crate::entropy::Entropy;
use crate::packet::Direction;
use crate::wire::ethernet::ethertype;
use crate::wire::tcp::flags;
use crate::wire::{Flow, FrameBuilder, MacAddr, protocol};

/// Where the hosts of generated traffic live. Few hosts are more telling than many: their flows meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Addresses of the first inside host; the others follow them.
    pub inside: (Ipv4Addr, Ipv6Addr),
    /// Addresses of the first outside host; the others follow them.
    pub outside: (Ipv4Addr, Ipv6Addr),
    /// Number of hosts on each side; 0 counts as 1.
    pub hosts: u16,
    /// Share of the flows that are IPv6, 0 … 1.
    pub ipv6: f64,
    /// Share of the flows with one or two VLAN tags, 0 … 1.
    pub tagged: f64,
    /// Share of the flows that the outside opens, 0 … 1.
    pub from_outside: f64,
}

impl Default for Network {
    /// Four hosts from 10.0.0.1 and fd00::1 on inside, four from 198.18.0.1 and 2001:db8::1 on outside. A quarter
    /// of the flows is IPv6, an eighth tagged, a quarter comes from outside.
    fn default() -> Self {
        Network {
            inside: (Ipv4Addr::new(10, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
            outside: (Ipv4Addr::new(198, 18, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
            hosts: 4,
            ipv6: 0.25,
            tagged: 0.125,
            from_outside: 0.25,
        }
    }
}

/// What an opening speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
    /// Echo of the IP version's ICMP.
    Icmp,
}

/// The flow of a conversation's first packet, and which way that packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) direction: Direction,
    pub(super) flow: Flow,
}

impl Opening {
    /// The same conversation as its answers see it.
    pub(super) fn reverse(self) -> Self {
        Opening { direction: self.direction.reverse(), flow: self.flow.reverse() }
    }
}

/// Flows from the inside to the outside, UDP or TCP, from a client's port to a server's.
/// Shrinks to UDP over IPv4 between the first hosts, from port 1024 to port 1.
pub fn flow(network: &Network) -> impl Strategy<Value = Flow> + use<> {
    let network = Network { from_outside: 0.0, ..network.clone() };
    opening(&network, select(&[Transport::Udp, Transport::Tcp][..])).prop_map(|opening| opening.flow)
}

/// Up to `most` packets of `flow`, which runs from the inside to the outside, and of its answers: see
/// [`packet_of`]. Times count from 0.
pub fn packets_of(flow: Flow, most: usize) -> impl Strategy<Value = Trace> {
    let opening = Opening { direction: Direction::Outbound, flow };
    let packet = (any::<bool>(), payload(1_400), pace());
    prop::collection::vec(packet, 0..=most).prop_map(move |packets| {
        let mut time = 0;
        let frame = |(is_answer, payload, pace): (bool, Vec<u8>, Nanos)| {
            let Opening { direction, flow } = if is_answer { opening.reverse() } else { opening };
            let frame = TraceFrame { time, direction, bytes: packet_of(&flow, &payload) };
            time += 1 + pace;
            frame
        };
        Trace(packets.into_iter().map(frame).collect())
    })
}

/// The headers of a flow from Ethernet to IP, for a packet of one's own. MAC addresses follow from the IP addresses.
///
/// ```
/// use pannier_runtime::testing::frame_builder;
/// use pannier_runtime::wire::{Flow, protocol};
/// let (client, server) = ("10.0.0.1:1024".parse().unwrap(), "198.18.0.1:53".parse().unwrap());
/// let flow = Flow::new(protocol::UDP, client, server);
/// assert_eq!(Flow::parse(&frame_builder(&flow).ttl(1).udp(1024, 53, b"?")), Ok(flow));
/// ```
#[must_use]
pub fn frame_builder(flow: &Flow) -> FrameBuilder {
    prioritized(flow, 0)
}

/// As [`frame_builder`], with the upper four bits of all VLAN tags' control information.
pub(super) fn prioritized(flow: &Flow, priority: u16) -> FrameBuilder {
    let mut builder = untagged(flow);
    let ids = flow.vlan_ids();
    for (index, id) in ids[..flow.vlan_count()].iter().enumerate() {
        let is_outer = index + 1 < flow.vlan_count();
        let kind = if is_outer { ethertype::SERVICE_VLAN } else { ethertype::VLAN };
        builder = builder.tag(kind, priority << 12 | id);
    }
    builder
}

fn untagged(flow: &Flow) -> FrameBuilder {
    let (source, destination) = (flow.source(), flow.destination());
    let builder = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => FrameBuilder::ipv4(source, destination),
        _ => FrameBuilder::ipv6(as_ipv6(source), as_ipv6(destination)),
    };
    builder.ethernet(mac_of(source), mac_of(destination))
}

/// A packet of the flow: UDP, TCP with ACK alone, an ICMP echo request or (where the identifier stands in the place
/// of the destination port) a reply; of another protocol, `payload` behind the IP header.
#[must_use]
pub fn packet_of(flow: &Flow, payload: &[u8]) -> Vec<u8> {
    let builder = frame_builder(flow);
    let (source, destination) = (flow.source_port(), flow.destination_port());
    match flow.protocol() {
        protocol::UDP => builder.udp(source, destination, payload),
        protocol::TCP => builder.tcp(source, destination, flags::ACK, payload),
        _ if flow.is_icmp_query() => echo(builder, flow, 0, payload),
        other => builder.raw(other, payload),
    }
}

/// Ends `builder` with the echo of an ICMP flow.
pub(super) fn echo(builder: FrameBuilder, flow: &Flow, sequence: u16, payload: &[u8]) -> Vec<u8> {
    match flow.destination_port() {
        0 => builder.icmp_echo_request(flow.source_port(), sequence, payload),
        id => builder.icmp_echo_reply(id, sequence, payload),
    }
}

/// Openings over a network.
pub(super) fn opening<T>(network: &Network, transport: T) -> impl Strategy<Value = Opening> + use<T>
where
    T: Strategy<Value = Transport>,
{
    let network = network.clone();
    let host = 0..u32::from(network.hosts.max(1));
    let versions = share(network.ipv6);
    let from_outside = share(network.from_outside);
    let tags = vlans(network.tagged);
    (transport, versions, from_outside, host.clone(), host, client_port(), server_port(), tags).prop_map(
        move |(transport, is_ipv6, from_outside, inside, outside, client, server, vlans)| {
            let inside = nth(network.inside, is_ipv6, inside);
            let outside = nth(network.outside, is_ipv6, outside);
            let (direction, source, destination) = match from_outside {
                false => (Direction::Outbound, inside, outside),
                true => (Direction::Inbound, outside, inside),
            };
            let (number, server) = match transport {
                Transport::Udp => (protocol::UDP, server),
                Transport::Tcp => (protocol::TCP, server),
                Transport::Icmp => (if is_ipv6 { protocol::ICMPV6 } else { protocol::ICMP }, 0),
            };
            let flow =
                Flow::new(number, SocketAddr::new(source, client), SocketAddr::new(destination, server));
            Opening { direction, flow: on_vlans(flow, &vlans) }
        },
    )
}

/// All transports, the plainest first.
pub(super) fn transports() -> impl Strategy<Value = Transport> {
    select(&[Transport::Udp, Transport::Tcp, Transport::Icmp][..])
}

fn on_vlans(flow: Flow, vlans: &[u16]) -> Flow {
    let tagged = vlans.iter().fold(untagged(&flow), |builder, id| builder.vlan(*id));
    match Flow::parse(&tagged.raw(protocol::NO_NEXT_HEADER, &[])) {
        Ok(tagged) => flow.on_vlans_of(&tagged),
        Err(_) => flow,
    }
}

/// The n-th host's address.
fn nth((v4, v6): (Ipv4Addr, Ipv6Addr), is_ipv6: bool, host: u32) -> IpAddr {
    match is_ipv6 {
        false => Ipv4Addr::from_bits(v4.to_bits().wrapping_add(host)).into(),
        true => Ipv6Addr::from_bits(v6.to_bits().wrapping_add(host.into())).into(),
    }
}

pub(super) fn as_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// A locally administered address that ends like the IP address, so that hosts differ on both layers.
pub(super) fn mac_of(address: IpAddr) -> MacAddr {
    let [.., a, b, c, d] = as_ipv6(address).octets();
    MacAddr([2, if address.is_ipv4() { 4 } else { 6 }, a, b, c, d])
}

/// A server's port: the known ones often, so that a test for one of them meets it.
fn server_port() -> impl Strategy<Value = u16> {
    let known = select(&[80_u16, 443, 53, 22][..]);
    plain_first(1, prop_oneof![1 => 1_u16..1_024, 3 => known, 1 => 1_024_u16..=u16::MAX])
}

/// A client's port: few of them often, so that flows collide where a function lets them.
fn client_port() -> impl Strategy<Value = u16> {
    plain_first(1_024, prop_oneof![2 => 1_024_u16..1_032, 1 => 1_024_u16..=u16::MAX])
}

/// True with this probability. Shrinks to false, unless it is certain.
fn share(probability: f64) -> BoxedStrategy<bool> {
    if probability >= 1.0 { Just(true).boxed() } else { prop::bool::weighted(probability.max(0.0)).boxed() }
}

/// No, one or two VLAN identifiers.
fn vlans(tagged: f64) -> BoxedStrategy<Vec<u16>> {
    let ids = prop::collection::vec(1_u16..4_095, 1..=2);
    let vlans = (share(tagged), ids).prop_map(|(is_tagged, ids)| if is_tagged { ids } else { Vec::new() });
    if tagged >= 1.0 { vlans.boxed() } else { plain_first(Vec::new(), vlans).boxed() }
}

/// Up to `most` bytes: often none, mostly few. Shrinks to none, and to zeros.
pub(super) fn payload(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![2 => Just(0), 3 => 0..=most.min(64), 1 => 0..=most];
    let bytes = (length, plain_first(0, any::<u32>())).prop_map(|(length, seed)| filled(length, seed));
    plain_first(Vec::new(), bytes)
}

/// Bytes that follow from one number: 0 stands for zeros. One number shrinks at once, a thousand bytes do not.
pub(super) fn filled(length: usize, seed: u32) -> Vec<u8> {
    let mut entropy = Entropy::new(seed.into());
    let mut bytes = Vec::with_capacity(length + 8);
    while seed != 0 && bytes.len() < length {
        bytes.extend(entropy.next_u64().to_le_bytes());
    }
    bytes.resize(length, 0);
    bytes
}

/// A time between packets: nothing, below a millisecond, below a second, and at times minutes, so that rows expire.
pub(super) fn pace() -> impl Strategy<Value = Nanos> {
    let some = prop_oneof![4 => 0..=SECOND / 1_000, 3 => 0..=SECOND, 1 => 0..=600 * SECOND];
    plain_first(0, prop_oneof![1 => Just(0), 2 => some])
}
