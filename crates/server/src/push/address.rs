//! Which addresses a push may reach.
//!
//! Everything that is not an ordinary public address is refused: a push must not become a way into
//! the machine, its network or the metadata service of its cloud. The check is numerical, so it
//! does not matter how an address was written or which name led to it. Forms of IPv6 that carry an
//! IPv4 address within are judged by that address, or refused where nobody needs them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is refused, or `None` for a public one.
pub(crate) fn refusal(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => refusal_v4(address),
        IpAddr::V6(address) => refusal_v6(address),
    }
}

/// A row of a table: addresses, how many leading bits count, and what they are.
type Row4 = (Ipv4Addr, u8, &'static str);
type Row6 = (Ipv6Addr, u8, &'static str);

const REFUSED_V4: &[Row4] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "private to a provider"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    // A public address by number, but inside one cloud it is the agent of the host.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "metadata"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmark"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(255, 255, 255, 255), 32, "broadcast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// Parts of the public space, and the better known of what lies outside it.
const REFUSED_V6: &[Row6] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 96, "an IPv4 address in disguise"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "private"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "a tunnel"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "a tunnel"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "private"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// Only this part of IPv6 is public.
const PUBLIC_V6: Network = Network::v6(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// An IPv4 address as a network without IPv4 of its own sees it: the last 32 bits are the address.
const NAT64: Network = Network::v6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

fn refusal_v4(address: Ipv4Addr) -> Option<&'static str> {
    REFUSED_V4
        .iter()
        .find(|(base, bits, _)| Network::v4(*base, *bits).contains(address.into()))
        .map(|(_, _, kind)| *kind)
}

fn refusal_v6(address: Ipv6Addr) -> Option<&'static str> {
    if NAT64.contains(address.into()) {
        let [.., a, b, c, d] = address.octets();
        return refusal_v4(Ipv4Addr::new(a, b, c, d));
    }
    let row = REFUSED_V6
        .iter()
        .find(|(base, bits, _)| Network::v6(*base, *bits).contains(address.into()));
    match row {
        Some((_, _, kind)) => Some(kind),
        None => (!PUBLIC_V6.contains(address.into())).then_some("reserved"),
    }
}

/// A range of addresses: `10.0.0.0/8`. IPv4 addresses in IPv6 form count as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    base: IpAddr,
    bits: u8,
}

impl Network {
    const fn v4(base: Ipv4Addr, bits: u8) -> Self {
        Self { base: IpAddr::V4(base), bits }
    }

    const fn v6(base: Ipv6Addr, bits: u8) -> Self {
        Self { base: IpAddr::V6(base), bits }
    }

    /// The range `text`; a single address is a range of one.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().ok()?;
        let width = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        // `::ffff:a.b.c.d/n` would never match, because such addresses count as IPv4.
        (bits <= width && base.to_canonical() == base).then_some(Self { base, bits })
    }

    /// Whether the address lies in the range.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let other = base.to_bits() ^ address.to_bits();
                other.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let other = base.to_bits() ^ address.to_bits();
                other.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> bool {
        refusal(text.parse().unwrap()).is_some()
    }

    #[test]
    fn g46_whatever_is_not_public_is_refused() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "168.63.129.16",
            "169.254.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "192.168.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::7f00:1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b:0:0:0:1:808:808",
            "100::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:2::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(refused(address), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_not_refused() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.17",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
        ] {
            assert_eq!(refusal(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn ranges_are_read_and_compared_by_bits() {
        let range = Network::read("10.1.0.0/16").unwrap();
        assert!(range.contains("10.1.255.255".parse().unwrap()));
        assert!(range.contains("::ffff:10.1.0.1".parse().unwrap()));
        assert!(!range.contains("10.2.0.0".parse().unwrap()));
        assert!(!range.contains("::1".parse().unwrap()));
        assert!(Network::read("0.0.0.0/0").unwrap().contains("127.0.0.1".parse().unwrap()));
        assert!(Network::read("::1").unwrap().contains("::1".parse().unwrap()));
        assert!(!Network::read("::1").unwrap().contains("::".parse().unwrap()));
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "a/8"] {
            assert_eq!(Network::read(text), None, "{text}");
        }
    }
}
