//! Two targets that have one subsystem over one disk: an ANA group moves between them under loads that
//! verify their reads, by changes and after a kill. The hosts are the Linux kernel's own multipath,
//! and ours with both addresses.

use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Instant;
use switchyard_e2e::guest::{DEVICE_MIB, Data, Target, programs, run_multipath};
use switchyard_e2e::limits::{COMMAND_DEADLINE, POLL_INTERVAL, READY_DEADLINE};
use switchyard_e2e::process::{DEFAULT_NQN, Process, Serve, switchyard, switchyard_binary};
use switchyard_e2e::vm::past_emulation_faults;
use switchyard_e2e::{Readiness, cache_directory, output_of, require_programs};

/// One machine's view of a disk that two machines share: a block device of its own, as the lock of a
/// file or block device is for one target of a machine.
struct View(PathBuf);

impl View {
    fn of(disk: &Path) -> Result<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--direct-io=on"]);
        let device = String::from_utf8(output_of(losetup.arg(disk))?)?;
        Ok(Self(device.trim_end().into()))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// A target, with its files.
struct Node {
    serve: Option<Serve>,
    config: String,
    state: String,
    api: String,
    _disk: View,
}

impl Node {
    /// Starts a target with the controller identifiers from `first_id` on.
    fn start(folder: &Path, name: &str, disk: View, first_id: u16, ana: &str) -> Result<Self> {
        let path = |end: &str| {
            let path = folder.join(format!("{name}.{end}"));
            path.to_str().map(str::to_owned).context("a path in UTF-8")
        };
        let (config, state) = (path("toml")?, path("json")?);
        let api = format!("unix:{}", path("sock")?);
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\napi = \"{api}\"\n\
             [limits]\nfirst_controller_id = {first_id}\nlast_controller_id = {}\n\
             [devices.disk]\ntype = \"file\"\npath = \"{}\"\n\
             [[subsystems]]\nnqn = \"{DEFAULT_NQN}\"\nallow_any_host = true\nana_state = \"{ana}\"\n\
             namespaces = [{{ nsid = 1, device = \"disk\", uuid = \"5d8b6a6e-6f4b-4c3a-9d6c-0d2f6a7b1c11\" }}]\n",
            first_id + 999,
            disk.0.display()
        );
        std::fs::write(&config, text)?;
        let mut node = Self {
            serve: None,
            config,
            state,
            api,
            _disk: disk,
        };
        node.serve_again()?;
        Ok(node)
    }

    fn serve_again(&mut self) -> Result<()> {
        let arguments = ["--config", &self.config, "--state", &self.state];
        self.serve = Some(Serve::start_again(&arguments)?);
        Ok(())
    }

    fn address(&self) -> String {
        let serve = self.serve.as_ref();
        serve.map_or_else(String::new, |serve| serve.address().to_string())
    }

    fn kill(&mut self) -> Result<()> {
        let serve = self.serve.take().context("a target runs")?;
        // It comes back at the same address.
        let address = serve.address().to_string();
        serve.kill()?;
        let text = std::fs::read_to_string(&self.config)?;
        std::fs::write(&self.config, text.replace("127.0.0.1:0", &address))?;
        Ok(())
    }

    fn set(&self, state: &str, epoch: u32) -> Result<()> {
        let epoch = epoch.to_string();
        let set = ["subsystem", "set", DEFAULT_NQN, "--ana-state", state];
        let owned = ["--epoch", &epoch, "--api", &self.api];
        switchyard(&[&set[..], &owned].concat()).map(drop)
    }
}

/// Moves the disk's group to one of the targets, as its owner in that epoch.
fn give(nodes: &[Node; 2], to: usize, epoch: u32) -> Result<()> {
    nodes[1 - to].set("inaccessible", epoch)?;
    nodes[to].set("optimized", epoch)
}

/// Both targets, of which the first has the disk.
fn start(folder: &Path) -> Result<[Node; 2]> {
    let disk = folder.join("disk");
    File::create(&disk)?.set_len(DEVICE_MIB << 20)?;
    Ok([
        Node::start(folder, "first", View::of(&disk)?, 1, "optimized")?,
        Node::start(folder, "second", View::of(&disk)?, 1001, "inaccessible")?,
    ])
}

fn stop(nodes: [Node; 2], folder: &Path) -> Result<()> {
    for mut node in nodes {
        if let Some(serve) = node.serve.take() {
            serve.stop()?;
        }
    }
    Ok(std::fs::remove_dir_all(folder)?)
}

#[test]
fn our_host_follows_a_disk_from_target_to_target() -> Result<()> {
    if require_programs(&["losetup"])? == Readiness::Skip {
        return Ok(());
    }
    let folder = cache_directory("two-targets")?;
    let mut nodes = start(&folder)?;
    let addresses = nodes.each_ref().map(Node::address).join(",");
    let mut bench = Command::new(switchyard_binary()?);
    bench.args(["bench", "--target", &addresses, "--nqn", DEFAULT_NQN]);
    bench.args([
        "--rw",
        "randrw",
        "--depth",
        "8",
        "--seconds",
        "12",
        "--verify",
    ]);
    let load = Process::start(&mut bench)?;
    let connected = |nodes: &[Node; 2], to: usize| -> Result<()> {
        let began = Instant::now();
        while nodes[to].serve.as_ref().context("it runs")?.connections()? < 2 {
            ensure!(began.elapsed() < READY_DEADLINE, "no load at {to}");
            sleep(POLL_INTERVAL);
        }
        Ok(())
    };
    connected(&nodes, 0)?;
    for (to, epoch) in [(1, 1), (0, 2), (1, 3)] {
        give(&nodes, to, epoch)?;
        connected(&nodes, to)?;
    }
    nodes[1].kill()?;
    nodes[0].set("optimized", 4)?;
    connected(&nodes, 0)?;
    load.succeed(COMMAND_DEADLINE)?;
    stop(nodes, &folder)
}

#[test]
fn kernel_multipath_follows_a_disk_from_target_to_target() -> Result<()> {
    past_emulation_faults(&[&programs()[..], &["losetup"]].concat(), follow)
}

fn follow() -> Result<()> {
    let folder = cache_directory("multipath")?;
    let mut nodes = start(&folder)?;
    let targets = [("first", &nodes[0]), ("second", &nodes[1])].map(|(name, node)| Target {
        name,
        address: node.serve.as_ref().expect("it runs").address(),
    });
    let mut act = |step: &str| match step {
        "before" => give(&nodes, 1, 1),
        "moved-1" => give(&nodes, 0, 2),
        "moved-2" => give(&nodes, 1, 3),
        "moved-3" => give(&nodes, 0, 4),
        "moved-4" => give(&nodes, 1, 5),
        "moved-5" => {
            nodes[1].kill()?;
            nodes[0].set("optimized", 6)
        }
        "survived" => nodes[1].serve_again(),
        _ => Ok(()),
    };
    let report = run_multipath(&Data::from_seed(51), &targets, &mut act)?;
    let steps = "connected loaded before moved-1 moved-2 moved-3 moved-4 moved-5 survived returned \
                 verified disconnected";
    let steps: Vec<_> = steps.split_whitespace().map(str::to_owned).collect();
    report.check_survived(&steps)?;
    stop(nodes, &folder)
}
