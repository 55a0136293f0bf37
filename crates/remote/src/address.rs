//! Which addresses a redirect may lead to.
//!
//! A server that a user names may be anywhere. The target of a redirect is the server's choice: a host on the internet must
//! not make this program read from the network that it runs in, and no host from the metadata service of a cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The addresses that are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// All: the caller named the host.
    Any,
    /// All but link-local ones: a host of an inner network redirects.
    NotLinkLocal,
    /// Hosts of the internet only: a host of the internet redirects.
    Public,
}

impl Allowed {
    pub(crate) fn allows(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::NotLinkLocal => !is_link_local(unmapped(address)),
            Self::Public => is_public(address),
        }
    }
}

/// An address of IPv4 in the form of IPv6 counts as the address of IPv4.
fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => match (v6.to_ipv4_mapped(), v6.segments()) {
            (Some(v4), _) => IpAddr::V4(v4),
            // NAT64
            (None, [0x64, 0xff9b, 0, 0, 0, 0, high, low]) => {
                let [a, b] = high.to_be_bytes();
                let [c, d] = low.to_be_bytes();
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            (None, _) => address,
        },
        v4 => v4,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6 == METADATA_V6,
    }
}

/// The metadata service of AWS.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Whether an address is one of the internet.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match unmapped(address) {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            !(v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_broadcast()
                || v4.is_documentation()
                || v4.is_multicast()
                || a == 0
                || a >= 240
                // shared address space of providers
                || (a == 100 && (64..128).contains(&b))
                // benchmarks
                || (a == 198 && (b == 18 || b == 19)))
        }
        IpAddr::V6(v6) => {
            !(v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unique_local()
                || v6.is_unicast_link_local())
        }
    }
}

/// The system's resolver, without the addresses that are not allowed. Checked here and not before the request, so that a name
/// whose address changes between the two is caught too.
pub(crate) struct GuardedResolver(pub(crate) Allowed);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses: Vec<SocketAddr> = found.filter(|a| allowed.allows(a.ip())).collect();
            if addresses.is_empty() {
                let what = format!(
                    "{} has no address that a redirect may lead to",
                    name.as_str()
                );
                // an error of its own: an empty list would read like a name that does not exist
                return Err(what.into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn inner_addresses_are_not_public() {
        for inner in [
            "127.0.0.1",
            "127.1.2.3",
            "10.0.0.1",
            "172.16.9.9",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "255.255.255.255",
        ] {
            assert!(!is_public(ip(inner)), "{inner}");
        }
        for outer in [
            "1.1.1.1",
            "2606:4700::1111",
            "64:ff9b::101:101",
            "172.32.0.1",
        ] {
            assert!(is_public(ip(outer)), "{outer}");
        }
    }

    #[test]
    fn the_metadata_service_is_never_redirected_to() {
        for address in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
        ] {
            assert!(!Allowed::NotLinkLocal.allows(ip(address)), "{address}");
        }
        assert!(Allowed::NotLinkLocal.allows(ip("10.0.0.1")));
        assert!(Allowed::Any.allows(ip("169.254.169.254")));
    }

    #[test]
    fn a_name_of_an_inner_address_is_not_resolved() {
        let resolve = |allowed| {
            let name = Name::from_str("localhost").unwrap();
            let (send, receive) = std::sync::mpsc::channel();
            crate::runtime::runtime().unwrap().spawn(async move {
                let found = GuardedResolver(allowed).resolve(name).await;
                send.send(found.map(Iterator::count).map_err(|e| e.to_string()))
                    .unwrap();
            });
            receive.recv().unwrap()
        };
        assert!(resolve(Allowed::Any).unwrap() > 0);
        assert!(resolve(Allowed::Public).unwrap_err().contains("localhost"));
    }
}
