//! Which cores and which accelerators are near which memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// A memory node and its cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// The kernel's number of it.
    pub id: u32,
    /// Numbers of the cores beside it; none where the node is memory only.
    pub cores: Vec<usize>,
}

/// An accelerator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Accelerator {
    /// Where it sits, as in `0000:17:00.0`.
    pub address: String,
    /// The memory node beside it, where the machine says so.
    pub node: Option<u32>,
}

/// The machine's memory nodes and accelerators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// By number.
    pub nodes: Vec<Node>,
    /// In the order of their addresses: an [`Io::device`](crate::Io::device) is a place in this list. Those whose
    /// device file (`/dev/nvidia0`, `/dev/davinci0`) is not here, as in a container that was given some, are left out.
    pub accelerators: Vec<Accelerator>,
}

const NVIDIA: &str = "0x10de";
const AMD: &str = "0x1002";
const HUAWEI: &str = "0x19e5";

impl Topology {
    /// Of this machine. What cannot be read is left out; a machine without NUMA has one node or none.
    ///
    /// ```
    /// let topology = anamnesis_ppc::cache::Topology::read();
    /// println!("{} memory nodes, {} accelerators", topology.nodes.len(), topology.accelerators.len());
    /// ```
    pub fn read() -> Self {
        Self::under(Path::new("/"))
    }

    /// The node beside an accelerator; `None` if it is not known or makes no difference, there being one node.
    pub fn node_of(&self, device: u32) -> Option<&Node> {
        if self.nodes.len() < 2 {
            return None;
        }
        let node = self.accelerators.get(usize::try_from(device).ok()?)?.node?;
        self.nodes.iter().find(|it| it.id == node)
    }

    /// From the `sys`, `proc` and `dev` below `root`.
    pub fn under(root: &Path) -> Self {
        Self {
            nodes: nodes(&root.join("sys/devices/system/node")),
            accelerators: accelerators(root),
        }
    }
}

fn nodes(dir: &Path) -> Vec<Node> {
    let mut nodes = Vec::new();
    for name in names(dir) {
        let Some(id) = name.strip_prefix("node").and_then(|id| id.parse().ok()) else {
            continue;
        };
        let cores = fs::read_to_string(dir.join(&name).join("cpulist")).unwrap_or_default();
        nodes.push(Node {
            id,
            cores: numbers(&cores),
        });
    }
    nodes.sort_by_key(|node| node.id);
    nodes
}

fn accelerators(root: &Path) -> Vec<Accelerator> {
    let pci = root.join("sys/bus/pci/devices");
    // by address: vendor
    let mut found = BTreeMap::new();
    for address in names(&pci) {
        let (class, vendor) = (
            line(&pci.join(&address).join("class")),
            line(&pci.join(&address).join("vendor")),
        );
        let known = [NVIDIA, AMD].contains(&vendor.as_str());
        // 3D and processing accelerators, and display controllers of those who make more than screens of them
        let screen = ["0x0300", "0x0380"]
            .iter()
            .any(|kind| class.starts_with(kind));
        if class.starts_with("0x0302") || class.starts_with("0x1200") || (screen && known) {
            found.insert(address, vendor);
        }
    }
    // whatever else can render, as far as it is on the bus
    let drm = root.join("sys/class/drm");
    for name in names(&drm)
        .iter()
        .filter(|name| name.starts_with("renderD"))
    {
        let device = fs::canonicalize(drm.join(name).join("device")).ok();
        let address = device
            .as_ref()
            .and_then(|device| device.file_name()?.to_str());
        if let Some(address) = address.filter(|address| pci.join(address).exists()) {
            found
                .entry(address.to_owned())
                .or_insert_with(|| line(&pci.join(address).join("vendor")));
        }
    }
    let dev = names(&root.join("dev"));
    let mut ascends = 0;
    let mut visible = |address: &str, vendor: &str| match vendor {
        NVIDIA => {
            let about = root
                .join("proc/driver/nvidia/gpus")
                .join(address)
                .join("information");
            let about = fs::read_to_string(about).unwrap_or_default();
            let minor = about
                .lines()
                .find_map(|line| line.strip_prefix("Device Minor:"));
            minor.is_none_or(|minor| dev.contains(&format!("nvidia{}", minor.trim())))
        }
        HUAWEI => {
            ascends += 1;
            dev.contains(&format!("davinci{}", ascends - 1))
                || !dev.iter().any(|name| is_davinci(name))
        }
        _ => true,
    };
    found.retain(|address, vendor| visible(address, vendor));
    let accelerator = |address: String| {
        // −1 where there is one node
        let node = line(&pci.join(&address).join("numa_node")).parse().ok();
        Accelerator { address, node }
    };
    found.into_keys().map(accelerator).collect()
}

fn is_davinci(name: &str) -> bool {
    name.strip_prefix("davinci")
        .is_some_and(|number| number.parse::<u32>().is_ok())
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn line(path: &PathBuf) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// A list as in `0-2,5`.
fn numbers(list: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<usize>()) {
            // the kernel knows at most 8192
            numbers.extend((first..=last).take(8192));
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn pci(root: &Path, address: &str, class: &str, vendor: &str, node: &str) {
        for (file, text) in [("class", class), ("vendor", vendor), ("numa_node", node)] {
            write(
                root,
                &format!("sys/bus/pci/devices/{address}/{file}"),
                &format!("{text}\n"),
            );
        }
    }

    #[test]
    fn a_machine_of_two_nodes() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, "sys/devices/system/node/node1/cpulist", "2-3,6\n");
        write(root, "sys/devices/system/node/node0/cpulist", "0-1\n");
        write(root, "sys/devices/system/node/possible", "0-1\n");
        pci(root, "0000:17:00.0", "0x030200", NVIDIA, "0");
        pci(root, "0000:65:00.0", "0x030200", NVIDIA, "1");
        pci(root, "0000:b1:00.0", "0x030000", NVIDIA, "1");
        pci(root, "0000:03:00.0", "0x030000", "0x1a03", "0"); // the board's own screen
        pci(root, "0000:c1:00.0", "0x120000", HUAWEI, "1");
        pci(root, "0000:c2:00.0", "0x120000", HUAWEI, "-1");
        pci(root, "0000:d1:00.0", "0x038000", "0x8086", "0"); // one that renders
        pci(root, "0000:e1:00.0", "0x020000", "0x8086", "0"); // a network card
        fs::create_dir_all(root.join("sys/class/drm/renderD128")).unwrap();
        symlink(
            "../../../bus/pci/devices/0000:d1:00.0",
            root.join("sys/class/drm/renderD128/device"),
        )
        .unwrap();
        // the second is not given to us
        for (address, minor) in [
            ("0000:17:00.0", 0),
            ("0000:65:00.0", 1),
            ("0000:b1:00.0", 2),
        ] {
            let about = format!("Model: X\nDevice Minor: \t {minor}\n");
            write(
                root,
                &format!("proc/driver/nvidia/gpus/{address}/information"),
                &about,
            );
        }
        for name in [
            "nvidia0",
            "nvidia2",
            "nvidiactl",
            "davinci1",
            "davinci_manager",
        ] {
            write(root, &format!("dev/{name}"), "");
        }
        let topology = Topology::under(root);
        assert_eq!(
            topology.nodes[0],
            Node {
                id: 0,
                cores: vec![0, 1]
            }
        );
        assert_eq!(
            topology.nodes[1],
            Node {
                id: 1,
                cores: vec![2, 3, 6]
            }
        );
        let of = |address: &str, node| Accelerator {
            address: address.into(),
            node,
        };
        let expected = [
            of("0000:17:00.0", Some(0)),
            of("0000:b1:00.0", Some(1)),
            of("0000:c2:00.0", None),
            of("0000:d1:00.0", Some(0)),
        ];
        assert_eq!(topology.accelerators, expected);
        assert_eq!(topology.node_of(1), Some(&topology.nodes[1]));
        assert_eq!(topology.node_of(2), None); // not known
        assert_eq!(topology.node_of(9), None);
        // one node makes no difference
        let one = Topology {
            nodes: topology.nodes[..1].to_vec(),
            ..topology.clone()
        };
        assert_eq!(one.node_of(0), None);
    }

    #[test]
    fn lists() {
        assert_eq!(numbers("0-2,5\n"), [0, 1, 2, 5]);
        assert!(numbers("\n").is_empty());
        assert!(numbers("x-y,3-1").is_empty());
        assert!(Topology::under(Path::new("/nonexistent")).nodes.is_empty());
        Topology::read();
    }
}
