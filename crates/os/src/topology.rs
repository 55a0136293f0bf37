//! Memory nodes with their cores, and accelerators with the node that each is attached to.
//!
//! Read from sysfs and procfs; on systems without them the topology is empty.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::numa::parse_list;

/// A NUMA node: memory and the cores that are local to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NumaNode {
    /// The kernel's number of the node.
    pub id: u32,
    /// Numbers of its cores; empty for a node that has only memory.
    pub cores: Vec<usize>,
}

/// An accelerator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Accelerator {
    /// PCI address, as in `0000:17:00.0`.
    pub address: String,
    /// The node that it is attached to, if the firmware reports one.
    pub node: Option<u32>,
}

/// The machine's memory nodes and accelerators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Topology {
    /// Ascending by number.
    pub nodes: Vec<NumaNode>,
    /// Ascending by PCI address, so that an index into this list is a stable device number. Accelerators whose device file
    /// (`/dev/nvidia0`, `/dev/davinci0`) does not exist are left out: a container has only the files of those assigned to it.
    pub accelerators: Vec<Accelerator>,
}

const NVIDIA: &str = "0x10de";
const AMD: &str = "0x1002";
const HUAWEI: &str = "0x19e5";

impl Topology {
    /// Reads the topology of this machine. Entries that cannot be read are left out; a machine without NUMA has one node
    /// or none.
    ///
    /// ```
    /// let topology = anamnesis_os::topology::Topology::read();
    /// println!("{} memory nodes, {} accelerators", topology.nodes.len(), topology.accelerators.len());
    /// ```
    pub fn read() -> Self {
        Self::under(Path::new("/"))
    }

    /// The node of the accelerator with index `device`; `None` if it is unknown or the machine has a single node.
    pub fn node_of(&self, device: u32) -> Option<&NumaNode> {
        if self.nodes.len() < 2 {
            return None;
        }
        let node = self.accelerators.get(usize::try_from(device).ok()?)?.node?;
        self.nodes.iter().find(|candidate| candidate.id == node)
    }

    /// Reads the topology from the directories `sys`, `proc` and `dev` under `root`.
    pub fn under(root: &Path) -> Self {
        Self {
            nodes: read_nodes(&root.join("sys/devices/system/node")),
            accelerators: read_accelerators(root),
        }
    }
}

fn read_nodes(dir: &Path) -> Vec<NumaNode> {
    let mut nodes = Vec::new();
    for name in entry_names(dir) {
        let Some(id) = name.strip_prefix("node").and_then(|id| id.parse().ok()) else {
            continue;
        };
        let cores = fs::read_to_string(dir.join(&name).join("cpulist")).unwrap_or_default();
        nodes.push(NumaNode {
            id,
            cores: parse_list(&cores),
        });
    }
    nodes.sort_by_key(|node| node.id);
    nodes
}

fn read_accelerators(root: &Path) -> Vec<Accelerator> {
    let pci = root.join("sys/bus/pci/devices");
    // vendor by PCI address
    let mut found = BTreeMap::new();
    for address in entry_names(&pci) {
        let (class, vendor) = (
            trimmed(&pci.join(&address).join("class")),
            trimmed(&pci.join(&address).join("vendor")),
        );
        let computes = [NVIDIA, AMD].contains(&vendor.as_str());
        // PCI classes: 3D controllers (0302) and processing accelerators (12); VGA (0300) and other display controllers (0380)
        // only of vendors whose GPUs compute, because servers have a VGA controller on the board
        let is_display = ["0x0300", "0x0380"]
            .iter()
            .any(|prefix| class.starts_with(prefix));
        if class.starts_with("0x0302") || class.starts_with("0x1200") || (is_display && computes) {
            found.insert(address, vendor);
        }
    }
    // any other PCI device with a render node
    let drm = root.join("sys/class/drm");
    for name in entry_names(&drm)
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
                .or_insert_with(|| trimmed(&pci.join(address).join("vendor")));
        }
    }
    let dev = entry_names(&root.join("dev"));
    let mut ascends = 0;
    // NVIDIA's driver maps address to device number; Ascend devices are numbered in the order of their addresses
    let mut is_visible = |address: &str, vendor: &str| match vendor {
        NVIDIA => {
            let information = root
                .join("proc/driver/nvidia/gpus")
                .join(address)
                .join("information");
            let information = fs::read_to_string(information).unwrap_or_default();
            let minor = information
                .lines()
                .find_map(|line| line.strip_prefix("Device Minor:"));
            // without the driver's file nothing is known about the device file, and the accelerator is kept
            minor.is_none_or(|minor| dev.contains(&format!("nvidia{}", minor.trim())))
        }
        HUAWEI => {
            ascends += 1;
            dev.contains(&format!("davinci{}", ascends - 1))
                || !dev.iter().any(|name| is_davinci_device(name))
        }
        _ => true,
    };
    found.retain(|address, vendor| is_visible(address, vendor));
    let accelerator = |address: String| {
        // −1, which does not parse as `u32`, if the firmware reports no node
        let node = trimmed(&pci.join(&address).join("numa_node")).parse().ok();
        Accelerator { address, node }
    };
    found.into_keys().map(accelerator).collect()
}

fn is_davinci_device(name: &str) -> bool {
    name.strip_prefix("davinci")
        .is_some_and(|number| number.parse::<u32>().is_ok())
}

fn entry_names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn trimmed(path: &PathBuf) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn write_pci_device(root: &Path, address: &str, class: &str, vendor: &str, node: &str) {
        for (file, text) in [("class", class), ("vendor", vendor), ("numa_node", node)] {
            write(
                root,
                &format!("sys/bus/pci/devices/{address}/{file}"),
                &format!("{text}\n"),
            );
        }
    }

    #[test]
    fn topology_lists_nodes_and_the_accelerators_of_this_container() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, "sys/devices/system/node/node1/cpulist", "2-3,6\n");
        write(root, "sys/devices/system/node/node0/cpulist", "0-1\n");
        write(root, "sys/devices/system/node/possible", "0-1\n");
        write_pci_device(root, "0000:17:00.0", "0x030200", NVIDIA, "0");
        write_pci_device(root, "0000:65:00.0", "0x030200", NVIDIA, "1");
        write_pci_device(root, "0000:b1:00.0", "0x030000", NVIDIA, "1");
        write_pci_device(root, "0000:03:00.0", "0x030000", "0x1a03", "0"); // VGA of the board
        write_pci_device(root, "0000:c1:00.0", "0x120000", HUAWEI, "1");
        write_pci_device(root, "0000:c2:00.0", "0x120000", HUAWEI, "-1");
        write_pci_device(root, "0000:d1:00.0", "0x038000", "0x8086", "0"); // has a render node
        write_pci_device(root, "0000:e1:00.0", "0x020000", "0x8086", "0"); // a network card
        fs::create_dir_all(root.join("sys/class/drm/renderD128")).unwrap();
        symlink(
            "../../../bus/pci/devices/0000:d1:00.0",
            root.join("sys/class/drm/renderD128/device"),
        )
        .unwrap();
        // the second GPU is not assigned to this container
        for (address, minor) in [
            ("0000:17:00.0", 0),
            ("0000:65:00.0", 1),
            ("0000:b1:00.0", 2),
        ] {
            let information = format!("Model: X\nDevice Minor: \t {minor}\n");
            write(
                root,
                &format!("proc/driver/nvidia/gpus/{address}/information"),
                &information,
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
            NumaNode {
                id: 0,
                cores: vec![0, 1]
            }
        );
        assert_eq!(
            topology.nodes[1],
            NumaNode {
                id: 1,
                cores: vec![2, 3, 6]
            }
        );
        let accelerator = |address: &str, node| Accelerator {
            address: address.into(),
            node,
        };
        let expected = [
            accelerator("0000:17:00.0", Some(0)),
            accelerator("0000:b1:00.0", Some(1)),
            accelerator("0000:c2:00.0", None),
            accelerator("0000:d1:00.0", Some(0)),
        ];
        assert_eq!(topology.accelerators, expected);
        assert_eq!(topology.node_of(1), Some(&topology.nodes[1]));
        assert_eq!(topology.node_of(2), None); // unknown node
        assert_eq!(topology.node_of(9), None);
        // a single node
        let one = Topology {
            nodes: topology.nodes[..1].to_vec(),
            ..topology.clone()
        };
        assert_eq!(one.node_of(0), None);
    }

    #[test]
    fn missing_directories_give_an_empty_topology() {
        assert_eq!(
            Topology::under(Path::new("/nonexistent")),
            Topology::default()
        );
        Topology::read();
    }
}
