//! Link types: what a captured frame begins with, and how to make an Ethernet frame of it.

/// The bytes that [`LinkType::to_ethernet`] puts in front of a raw IP packet; add them to the original
/// length as well.
pub const ETHERNET_HEADER: usize = 14;

/// What the frames of an interface begin with, by the registered link type numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// Ethernet (1).
    Ethernet,
    /// An IPv4 or IPv6 packet, its first four bits say which (101; 12 and 14 in files of some systems).
    RawIp,
    /// An IPv4 packet (228).
    RawIpv4,
    /// An IPv6 packet (229).
    RawIpv6,
    /// BSD loopback: an address family in the capturing host's byte order (0).
    Null,
    /// OpenBSD loopback: an address family in network byte order (108).
    Loop,
    /// Linux "cooked" header of an `any` capture, first version (113).
    LinuxSll,
    /// Any other registered number.
    Other(u16),
}

/// Why a frame cannot become an Ethernet frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The link type has no Ethernet header, and none can be made up.
    #[error("link type {number} ({name}) cannot be carried as Ethernet: only Ethernet and raw IP can")]
    Link {
        /// The registered number.
        number: u16,
        /// Its usual name.
        name: &'static str,
    },
    /// A raw IP packet without a single byte.
    #[error("a raw IP packet of no bytes: nothing says whether it is IPv4 or IPv6")]
    NoVersion,
    /// A raw IP packet whose first four bits are neither 4 nor 6.
    #[error("a raw IP packet of version {version}: it is neither IPv4 nor IPv6")]
    Version {
        /// What the first four bits say.
        version: u8,
    },
}

impl From<u16> for LinkType {
    fn from(number: u16) -> Self {
        match number {
            0 => Self::Null,
            1 => Self::Ethernet,
            12 | 14 | 101 => Self::RawIp,
            108 => Self::Loop,
            113 => Self::LinuxSll,
            228 => Self::RawIpv4,
            229 => Self::RawIpv6,
            other => Self::Other(other),
        }
    }
}

impl LinkType {
    /// The registered number (101 for all three numbers of raw IP).
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Null => 0,
            Self::Ethernet => 1,
            Self::RawIp => 101,
            Self::Loop => 108,
            Self::LinuxSll => 113,
            Self::RawIpv4 => 228,
            Self::RawIpv6 => 229,
            Self::Other(number) => number,
        }
    }

    /// The usual name, "unknown" for numbers that are rarely met.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.number() {
            0 => "BSD loopback",
            1 => "Ethernet",
            6 => "Token Ring",
            8 => "SLIP",
            9 => "PPP",
            10 => "FDDI",
            50 => "PPP in HDLC framing",
            51 => "PPP over Ethernet",
            101 => "raw IP",
            104 => "Cisco HDLC",
            105 => "802.11",
            107 => "Frame Relay",
            108 => "OpenBSD loopback",
            113 => "Linux cooked",
            117 => "OpenBSD packet filter log",
            119 => "802.11 with Prism header",
            127 => "802.11 with radiotap header",
            147..=162 => "for private use",
            187 | 201 => "Bluetooth HCI",
            189 | 220 => "Linux USB",
            192 => "per-packet information",
            195 | 230 => "802.15.4",
            228 => "raw IPv4",
            229 => "raw IPv6",
            239 => "Linux netfilter log",
            249 => "USBPcap",
            253 => "Linux netlink",
            276 => "Linux cooked, second version",
            _ => "unknown",
        }
    }

    /// Makes an Ethernet frame of a captured frame, in place.
    ///
    /// Ethernet stays as it is. A raw IP packet gets a header with two zero addresses and the type of its IP
    /// version; the original length grows by [`ETHERNET_HEADER`] with it. Where the link type itself names
    /// the version (228, 229) that counts, so that a packet with a broken first byte keeps it.
    ///
    /// # Errors
    ///
    /// [`Refused`] for everything else; the frame is unchanged then.
    pub fn to_ethernet(self, frame: &mut Vec<u8>) -> Result<(), Refused> {
        const IPV4: [u8; 2] = [0x08, 0x00];
        const IPV6: [u8; 2] = [0x86, 0xdd];
        let ethertype = match self {
            Self::Ethernet => return Ok(()),
            Self::RawIpv4 => IPV4,
            Self::RawIpv6 => IPV6,
            Self::RawIp => match frame.first().map(|first| first >> 4) {
                Some(4) => IPV4,
                Some(6) => IPV6,
                Some(version) => return Err(Refused::Version { version }),
                None => return Err(Refused::NoVersion),
            },
            Self::Null | Self::Loop | Self::LinuxSll | Self::Other(_) => {
                return Err(Refused::Link { number: self.number(), name: self.name() });
            }
        };
        let length = frame.len();
        frame.resize(length + ETHERNET_HEADER, 0);
        frame.copy_within(..length, ETHERNET_HEADER);
        frame[..12].fill(0);
        frame[12..ETHERNET_HEADER].copy_from_slice(&ethertype);
        Ok(())
    }
}
