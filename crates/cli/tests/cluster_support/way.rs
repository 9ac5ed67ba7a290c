//! The way of each node to the coordinator, which can be cut while everything else goes on.
//!
//! Where this process may make network namespaces, the coordinator lives in one of its own and each node
//! reaches it by a link of its own; a way is cut by setting its link down, as if somebody pulled a plug.
//! Elsewhere there is a proxy for each node. Names and addresses are those of this process alone, so that
//! several tests may run at once, and all of it is gone when the [`Network`] is.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use super::proxy::Proxy;

/// The networks of the links are parts of 10.77.0.0/16: so many clusters, each with so many nodes.
const BLOCKS: u32 = 2_048;
const LINKS: u32 = 8;
/// Addresses of one link, of which two are used.
const LINK_ADDRESSES: u32 = 4;
/// What the names of namespaces begin with; the number of the process follows.
const NAMESPACE: &str = "punctual-";
const FIRST: u32 = u32::from_be_bytes([10, 77, 0, 0]);

/// A network namespace with a link for each node.
#[derive(Debug)]
pub struct Network {
    namespace: String,
    /// Which part of the addresses is ours.
    block: u32,
    links: u32,
}

/// One node's way.
#[derive(Debug)]
pub enum Way {
    Link { namespace: String, inside: String, coordinator: SocketAddr },
    Proxy(Proxy),
}

impl Network {
    /// Makes the namespace; nothing where that cannot be done.
    pub fn make() -> Option<Self> {
        sweep();
        let process = std::process::id();
        let namespace = format!("{NAMESPACE}{process}");
        if let Err(why) = ip(&["netns", "add", &namespace]) {
            eprintln!("no network namespaces here, nodes are cut off by proxies: {why}");
            return None;
        }
        let blocks = (0..BLOCKS).map(|more| (process + more) % BLOCKS);
        let block = blocks.into_iter().find(|block| is_free(*block)).unwrap();
        let network = Self { namespace, block, links: 0 };
        ip(&["-n", &network.namespace, "link", "set", "lo", "up"]).unwrap();
        Some(network)
    }

    /// Its name, for whoever starts something in it.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A link for one more node, to what listens at that port in the namespace.
    fn link(&mut self, port: u16) -> Way {
        assert!(self.links < LINKS, "there are links for so many nodes only");
        let number = self.links;
        self.links += 1;
        let (outside, inside) = (outside(number), format!("node{number}"));
        let [of_node, of_coordinator] = [1, 2].map(|place| address(self.block, number, place));
        let namespace = self.namespace.clone();
        let peer = ["peer", "name", &inside, "netns", &namespace];
        ip(&[&["link", "add", &outside, "type", "veth"], &peer[..]].concat()).unwrap();
        ip(&["address", "add", &format!("{of_node}/30"), "dev", &outside]).unwrap();
        ip(&["link", "set", &outside, "up"]).unwrap();
        let within = ["-n", &namespace];
        let address = ["address", "add", &format!("{of_coordinator}/30"), "dev", &inside];
        ip(&[&within[..], &address[..]].concat()).unwrap();
        ip(&["-n", &namespace, "link", "set", &inside, "up"]).unwrap();
        Way::Link { namespace, inside, coordinator: SocketAddr::from((of_coordinator, port)) }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A link ends at both ends; the namespace ends with the last process in it.
        for number in 0..self.links {
            let _gone = ip(&["link", "delete", &outside(number)]).is_ok();
        }
        let _gone = ip(&["netns", "delete", &self.namespace]).is_ok();
    }
}

impl Way {
    /// A way for one more node to the coordinator, which is in that network or at that address.
    pub fn new(network: Option<&mut Network>, coordinator: SocketAddr) -> Self {
        match network {
            Some(network) => network.link(coordinator.port()),
            None => Self::Proxy(Proxy::to(coordinator)),
        }
    }

    /// Where the node finds the coordinator.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Link { coordinator, .. } => *coordinator,
            Self::Proxy(proxy) => proxy.address(),
        }
    }

    pub fn cut(&self) {
        match self {
            Self::Link { .. } => self.set("down"),
            Self::Proxy(proxy) => proxy.cut(),
        }
    }

    pub fn mend(&self) {
        match self {
            Self::Link { .. } => self.set("up"),
            Self::Proxy(proxy) => proxy.mend(),
        }
    }

    fn set(&self, state: &str) {
        if let Self::Link { namespace, inside, .. } = self {
            ip(&["-n", namespace, "link", "set", inside, state]).unwrap();
        }
    }
}

/// Ends the namespaces of processes that were killed before they could, with the links into them.
fn sweep() {
    for name in ip(&["netns", "list"]).unwrap_or_default().split_whitespace() {
        let process = name.strip_prefix(NAMESPACE).and_then(|number| number.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _gone = ip(&["netns", "delete", name]).is_ok();
        }
    }
}

/// The name of a link outside of the namespace, where others have theirs.
fn outside(number: u32) -> String {
    format!("p{}n{number}", std::process::id())
}

fn address(block: u32, link: u32, place: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST + (block * LINKS + link) * LINK_ADDRESSES + place)
}

/// Whether nobody has a way into that part of the addresses.
fn is_free(block: u32) -> bool {
    let first = address(block, 0, 0);
    let routes = ip(&["route", "show", "root", &format!("{first}/27")]);
    routes.is_ok_and(|routes| routes.trim().is_empty())
}

/// What the tool says, or its complaint.
fn ip(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("ip");
    let outcome = command.args(arguments).stdin(Stdio::null()).output();
    let outcome = outcome.map_err(|error| format!("ip: {error}"))?;
    if outcome.status.success() {
        return Ok(String::from_utf8_lossy(&outcome.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&outcome.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), complaint.trim()))
}
