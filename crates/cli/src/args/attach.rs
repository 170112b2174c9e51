//! `switchyard attach`.

use super::{Cores, HostArgs, Poll, block_size, device, for_target};
use attach::{FrontEndOptions, RemoteNamespaces, SourceDevice, Wanted, block_size_of};
use base::units::CoreId;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use control::attachments::Entry;
use control::model::{ApiAddress, BlockSize, DEFAULT_NQN, DeviceKind, SocketMode};
use control::socket_access::{SocketAccess, group_number};
use frontend::nbd::{Address, NbdOptions, TlsOptions};
use frontend::ublk::UblkOptions;
use frontend::vhost::VhostOptions;
use frontend::{ClassChoice, ClassRules, fuse};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use switch::knobs::Preset;
use switch::path::PathError;
use switch::{Class, PathSpec};

/// Give unmodified applications a device
///
/// One device by the flags of its kind, or all devices of a file. The keys of an attachment in the
/// file are the flags of its kind, with "_" for "-" in them, beside its name and kind; FUSE's
/// directory is "mountpoint". SIGHUP attaches what is new in the file, and detaches what is gone
/// from it unless it is in use. Sockets that systemd passes (LISTEN_FDS) are used by the attachments
/// with their addresses.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard attach nbd --socket /run/disk.sock --target 127.0.0.1:4420
  switchyard attach --config /etc/switchyard/attach.toml
  switchyard attachments --api unix:/run/switchyard-attach/api.sock

Exit codes: 0 detached, 1 ended while in use or with requests given up, 2 an error")]
pub struct AttachArgs {
    #[command(subcommand)]
    pub kind: Option<AttachCommand>,
    /// Attach all devices of this TOML file
    #[arg(long, value_name = "FILE", conflicts_with = "api")]
    pub config: Option<PathBuf>,
    /// Attach only this one of the file
    ///
    /// One process for each attachment keeps a fault in one of them from ending the others. There is no
    /// HTTP interface then: the file's key "api" is for the process that attaches all.
    #[arg(long, value_name = "NAME", requires = "config")]
    pub only: Option<String>,
    /// Serve the HTTP interface and metrics here: unix:/PATH, such as
    /// unix:/run/switchyard-attach/api.sock
    ///
    /// Only the owner of the process may open it. With --config the file's key "api" says it.
    /// 127.0.0.1:PORT is possible with a token, as for serve.
    #[arg(long, value_name = "ADDRESS", global = true)]
    pub api: Option<ApiAddress>,
}

#[derive(Subcommand, Clone, Debug)]
pub enum AttachCommand {
    /// Serve the device by the NBD protocol
    Nbd(AttachNbdArgs),
    /// Make the device a file of a directory
    Fuse(AttachFuseArgs),
    /// Give a virtual machine the device
    Vhost(AttachVhostArgs),
    /// Make the device a block device
    Ublk(AttachUblkArgs),
}

impl AttachCommand {
    /// Returns the attachment that is described: with these rules before its class, and with the name of
    /// its entry of a file, or that of its kind where there is none.
    pub fn wanted(&self, rules: ClassRules, entry: Option<Entry>) -> Wanted {
        let (source, read_only, front_end) = match self {
            Self::Nbd(args) => (&args.source, args.serving.read_only, args.options(rules)),
            Self::Fuse(args) => (&args.source, args.read_only, args.options(rules)),
            Self::Vhost(args) => (&args.source, args.serving.read_only, args.options(rules)),
            Self::Ublk(args) => (&args.source, args.serving.read_only, args.options(rules)),
        };
        let socket_access = match self {
            Self::Nbd(args) => args.access.get(),
            Self::Vhost(args) => args.access.get(),
            Self::Fuse(_) | Self::Ublk(_) => SocketAccess::default(),
        };
        let name = entry.as_ref().map(|entry| entry.name.clone());
        Wanted {
            name: name.unwrap_or_else(|| front_end.kind().to_owned()),
            device: source.device(read_only),
            path: source.path,
            nice: source.nice,
            socket_access,
            front_end,
            entry,
        }
    }
}

/// Address of the interface of a running attach process.
#[derive(Args, Clone, Debug)]
pub struct AttachApiArgs {
    /// The HTTP interface of the process: unix:/PATH, or HOST:PORT with SWITCHYARD_API_TOKEN in the
    /// environment (or SWITCHYARD_API_TOKEN_FILE, the name of a file that has it)
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "unix:/run/switchyard-attach/api.sock"
    )]
    pub api: ApiAddress,
}

/// List the attachments of a running attach process
///
/// The process must have an interface: --api, or the key "api" of its file.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard attachments
  switchyard attachments --api unix:/run/attach.sock --json

Exit codes: 0 done, 2 an error")]
pub struct AttachmentsArgs {
    #[command(flatten)]
    pub api: AttachApiArgs,
}

/// Detach a device of a running attach process
///
/// Requests under way are finished first, for ten seconds at most. One that is in use is refused
/// without --force. Until the process is told to read its file again (SIGHUP), or is started again,
/// the device stays detached.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard detach vm1
  switchyard detach vm1 --force --api unix:/run/attach.sock

Exit codes: 0 detached, 1 ended while in use or with requests given up, 2 an error, such as one in use")]
pub struct DetachArgs {
    /// Name of the attachment
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Detach it although it is in use: later requests of its clients fail
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub api: AttachApiArgs,
}

/// A device to be attached: a namespace of a target, or a device of this machine.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("source").required(true))]
#[command(mut_args = |arg| for_target(arg, &["ram", "file", "flash", "null"]))]
pub struct SourceArgs {
    /// The target of the namespace: HOST:PORT
    #[arg(long, value_name = "ADDRESS", group = "source")]
    pub target: Option<String>,
    /// The subsystem's name
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN)]
    pub nqn: String,
    /// The namespace's identifier [default: 1; with fuse all of the subsystem]
    #[arg(long, value_name = "NSID")]
    pub nsid: Option<u32>,
    /// Memory of this size, such as 1G; its content ends with the process
    #[arg(long, value_name = "SIZE", group = "source", value_parser = device::ram)]
    pub ram: Option<DeviceKind>,
    /// A file or block device
    #[arg(long, value_name = "PATH", group = "source", value_parser = device::file())]
    pub file: Option<DeviceKind>,
    /// Memory that is as slow as a flash device, such as A/8:1G
    #[arg(long, value_name = "PROFILE:SIZE", group = "source", value_parser = device::flash)]
    pub flash: Option<DeviceKind>,
    /// A device of this size that forgets writes and reads as zeroes
    #[arg(long, value_name = "SIZE", group = "source", value_parser = device::null)]
    pub null: Option<DeviceKind>,
    /// Logical block of a device of this machine: 512 or 4096 bytes [default: that of a block device,
    /// otherwise 512]
    #[arg(long, value_name = "BYTES", value_parser = block_size)]
    pub block_size: Option<BlockSize>,
    /// The I/O path of its requests: interrupt, poll, sync, stm, atm, htm, vfs_htm or 2q, and its
    /// parameters, as stm:table_entries=64,handover_us=1000
    ///
    /// The parameters: the most requests of one batch [1024]; the time after which a queue is taken
    /// over from a thread that does not run [1000].
    #[arg(long, value_name = "PATH", value_parser = awaited_path)]
    pub path: Option<PathSpec>,
    /// Fail requests after so many seconds without a connection to the target, 0 for never
    ///
    /// Requests wait until then, and are carried out when the target is back. It is connected to again
    /// also later: then requests fail until it is back.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = super::seconds)]
    pub io_timeout: Duration,
    /// Send to the target as another stack does, to compare with: linux, nvme-tcp or poll
    ///
    /// As for bench; the target has to be started so as well. The front end itself still serves L
    /// before T: --class T gives all requests one class.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["ram", "file", "flash", "null"])]
    pub baseline: Option<Preset>,
    /// Nice value of its threads, 0 to 19: a bulk device that shares processors with others leaves
    /// them to those with a lower one
    #[arg(long, value_name = "NUMBER", default_value = "0",
          value_parser = clap::value_parser!(u8).range(0..=19))]
    pub nice: u8,
    #[command(flatten)]
    pub host: HostArgs,
}

impl SourceArgs {
    /// Returns the device, which refuses writes if it is a file of this machine and `read_only` is true.
    fn device(&self, read_only: bool) -> SourceDevice {
        let local = [&self.ram, &self.null, &self.flash, &self.file];
        if let Some(kind) = local.into_iter().flatten().next() {
            let block_size = self.block_size.unwrap_or_else(|| block_size_of(kind));
            return SourceDevice::Local(kind.clone().with(block_size, read_only));
        }
        let timeout = Some(self.io_timeout).filter(|timeout| !timeout.is_zero());
        let knobs = self.baseline.unwrap_or(Preset::Switchyard).knobs();
        let address = self.target.clone();
        SourceDevice::Remote(Box::new(RemoteNamespaces {
            host: self.host.builder().loss_timeout(timeout).knobs(knobs),
            address: address.expect("the command line demands a device"),
            nqn: self.nqn.clone(),
            nsid: self.nsid,
        }))
    }
}

/// Access to the Unix socket of a front end.
#[derive(Args, Clone, Debug)]
pub struct SocketAccessArgs {
    /// Permission bits of the socket, in octal [default: 0600, or 0660 with --socket-group]
    #[arg(long, value_name = "MODE")]
    pub socket_mode: Option<SocketMode>,
    /// Group of the socket: a name of /etc/group, or a number
    #[arg(long, value_name = "GROUP", value_parser = group_number)]
    pub socket_group: Option<u32>,
}

impl SocketAccessArgs {
    const fn get(&self) -> SocketAccess {
        SocketAccess {
            mode: self.socket_mode,
            group: self.socket_group,
        }
    }
}

/// The service of a front end that may have several cores.
#[derive(Args, Clone, Debug)]
pub struct ServingArgs {
    /// Refuse writes
    #[arg(long)]
    pub read_only: bool,
    /// Processors to run on, one thread each, such as 0-3 or 0,2 [default: one thread anywhere]
    #[arg(long, value_name = "LIST")]
    pub cores: Option<Cores>,
    /// Policy of an idle core
    #[arg(long, value_enum, default_value = "auto")]
    pub poll: Poll,
}

impl ServingArgs {
    /// Returns the processors to run on.
    pub fn cores(&self) -> Vec<CoreId> {
        let cores = self.cores.iter().flat_map(|cores| &cores.0);
        cores.copied().map(CoreId).collect()
    }
}

/// Serve the device by the NBD protocol
///
/// Says "ready" with the URI that clients need, and serves until SIGTERM or SIGINT; requests under
/// way are finished first, for ten seconds at most. The default export has the class of --class; the
/// exports "latency" and "throughput" have theirs.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("address").required(true))]
#[command(after_long_help = "Examples:
  switchyard attach nbd --socket /run/disk.sock --target 127.0.0.1:4420
  qemu-img convert image.qcow2 'nbd+unix:///?socket=/run/disk.sock'
  switchyard attach nbd --listen 127.0.0.1:10809 --file disk.img --class L
  nbd-client 127.0.0.1 10809 /dev/nbd0
  switchyard attach nbd --listen 192.0.2.1:10809 --file disk.img \\
      --tls-certificates /etc/pki/nbd --tls-verify-peer

Exit codes: 0 detached, 1 ended while in use or with requests given up, 2 an error")]
pub struct AttachNbdArgs {
    /// Listen on this Unix socket
    #[arg(long, value_name = "PATH", group = "address")]
    pub socket: Option<PathBuf>,
    #[command(flatten)]
    pub access: SocketAccessArgs,
    /// Listen on this address; port 0 takes a free one
    ///
    /// A loopback address, or any where TLS is required and verifies clients.
    #[arg(
        long,
        value_name = "HOST:PORT",
        group = "address",
        conflicts_with_all = ["socket_mode", "socket_group"]
    )]
    pub listen: Option<Address>,
    /// Serve by TLS with the files of this folder: server-cert.pem and server-key.pem; to verify
    /// clients also ca-cert.pem, and ca-crl.pem where there is one
    #[arg(long, value_name = "DIRECTORY")]
    pub tls_certificates: Option<PathBuf>,
    /// Clients may use TLS (on) or have to (require)
    #[arg(
        long,
        value_enum,
        default_value = "require",
        requires = "tls_certificates"
    )]
    pub tls: TlsPolicy,
    /// Serve only clients with a certificate of the authority in ca-cert.pem
    #[arg(long, requires = "tls_certificates")]
    pub tls_verify_peer: bool,
    #[command(flatten)]
    pub source: SourceArgs,
    /// Class of the requests: L (latency) or T (throughput)
    #[arg(long, value_name = "CLASS", default_value = "T")]
    pub class: Class,
    #[command(flatten)]
    pub serving: ServingArgs,
}

impl AttachNbdArgs {
    fn options(&self, rules: ClassRules) -> FrontEndOptions {
        let listen = || self.listen.clone().expect("the command line demands one");
        let tls = |certificates: &PathBuf| TlsOptions {
            certificates: certificates.clone(),
            require: self.tls == TlsPolicy::Require,
            verify_peer: self.tls_verify_peer,
        };
        FrontEndOptions::Nbd(NbdOptions {
            address: self.socket.clone().map_or_else(listen, Address::Unix),
            class: self.class,
            rules,
            tls: self.tls_certificates.as_ref().map(tls),
            read_only: self.serving.read_only,
            cores: self.serving.cores(),
            poll: self.serving.poll.into(),
        })
    }
}

/// The rule for clients of a server with certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsPolicy {
    /// Plain text is possible as well
    On,
    /// Plain text is refused
    Require,
}

/// Make the device a file of a directory
///
/// The file DIRECTORY/NSID is as large as the device and has its content; 1 for a device of this
/// machine. Says "ready" for each file, and serves until SIGTERM or SIGINT. While files are open
/// the first signal only says so, and it ends when they are closed; the second ends all the same. Needs /dev/fuse, and fusermount3
/// (package fuse3) where it does not run as root.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard attach fuse /mnt/disks --target 127.0.0.1:4420
  fio --name=a --filename=/mnt/disks/1 --direct=1 --ioengine=io_uring --rw=randread --bs=4k
  losetup --find --show --direct-io=on --sector-size 4096 /mnt/disks/1

Exit codes: 0 detached, 1 ended while in use or with requests given up, 2 an error")]
pub struct AttachFuseArgs {
    /// An empty directory
    #[arg(value_name = "DIRECTORY")]
    pub mountpoint: PathBuf,
    #[command(flatten)]
    pub source: SourceArgs,
    /// Class of the requests: L (latency), T (throughput), or auto: L for threads with a real-time
    /// I/O priority (ionice -c1), T for others
    #[arg(long, value_name = "CLASS", default_value = "auto")]
    pub class: ClassChoice,
    /// Refuse writes
    #[arg(long)]
    pub read_only: bool,
    /// Let other users use the files
    ///
    /// A user without privileges needs user_allow_other in /etc/fuse.conf.
    #[arg(long)]
    pub allow_other: bool,
    /// Processor of the thread that serves, such as 0 [default: any]
    #[arg(long = "cores", alias = "core", value_name = "NUMBER", value_parser = one_core)]
    pub core: Option<u32>,
    /// Policy of the thread that serves while it is idle; auto polls for the answer to a request
    /// that is the only one, while no other thread wants the processor
    #[arg(long, value_enum, default_value = "auto")]
    pub poll: Poll,
}

impl AttachFuseArgs {
    fn options(&self, rules: ClassRules) -> FrontEndOptions {
        FrontEndOptions::Fuse(fuse::Options {
            mountpoint: self.mountpoint.clone(),
            class: self.class,
            rules,
            core: self.core.map(CoreId),
            poll: self.poll.into(),
            allow_other: self.allow_other,
            read_only: self.read_only,
            modified: BTreeMap::new(),
        })
    }
}

/// Give a virtual machine the device
///
/// Serves the device as virtio-blk by the vhost-user protocol, to one machine at a time; its memory
/// must be shared. Says "ready" with the socket, and serves until SIGTERM or SIGINT; requests under
/// way are finished first, for ten seconds at most, and what is left is for the next one to finish.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard attach vhost --socket /run/disk.sock --target 127.0.0.1:4420
  qemu-system-x86_64 -m 4G -object memory-backend-memfd,id=ram,size=4G,share=on \\
      -machine memory-backend=ram -chardev socket,id=disk,path=/run/disk.sock,reconnect=1 \\
      -device vhost-user-blk-pci,chardev=disk …
  cloud-hypervisor --memory size=4G,shared=on --disk vhost_user=true,socket=/run/disk.sock …
  switchyard bench --device vhost:/run/disk.sock --app 'a:rw=randread,bs=4k,depth=32'

Exit codes: 0 detached, 1 ended while in use or with requests given up, 2 an error")]
pub struct AttachVhostArgs {
    /// Listen on this Unix socket
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    #[command(flatten)]
    pub access: SocketAccessArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    /// Class of the requests: L (latency), T (throughput), or auto: L for those of processes with a
    /// real-time I/O priority in the guest (ionice -c1), T for others
    #[arg(long, value_name = "CLASS", default_value = "auto")]
    pub class: ClassChoice,
    /// Request queues of the disk, of which a machine may use fewer [default: 64]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub queues: Option<u16>,
    /// The disk's serial number in the guest, of at most 20 bytes [default: 16 hexadecimal digits
    /// that follow from the namespace's NGUID, EUI-64 or UUID, or from the file]
    #[arg(long, value_name = "TEXT")]
    pub serial: Option<String>,
    #[command(flatten)]
    pub serving: ServingArgs,
}

impl AttachVhostArgs {
    fn options(&self, rules: ClassRules) -> FrontEndOptions {
        FrontEndOptions::Vhost(VhostOptions {
            class: self.class,
            rules,
            read_only: self.serving.read_only,
            queues: self.queues,
            id: self.serial.clone().unwrap_or_default(),
            cores: self.serving.cores(),
            poll: self.serving.poll.into(),
            ..VhostOptions::new(&self.socket)
        })
    }
}

/// Make the device a block device
///
/// Makes /dev/ublkbN by the kernel's driver ublk_drv (Linux 6.5 or newer), which takes root. Says
/// "ready" with its path, and serves until SIGTERM or SIGINT. While the block device is open the first
/// signal only says so, and it ends when it is closed; the second removes it all the same. After a crash requests wait until it
/// is started again with the same --id, which carries them out.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  modprobe ublk_drv
  switchyard attach ublk --id 0 --target 127.0.0.1:4420 --cores 0-1
  mkfs.ext4 /dev/ublkb0
  fio --name=a --filename=/dev/ublkb0 --direct=1 --ioengine=io_uring --rw=randread --bs=4k

Exit codes: 0 detached, 1 ended while in use or with requests given up, 2 an error")]
pub struct AttachUblkArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// The N of /dev/ublkbN, also of one that waits for a server [default: a free one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..1 << 20))]
    pub id: Option<u32>,
    /// Class of the requests: L (latency) or T (throughput)
    #[arg(long, value_name = "CLASS", default_value = "T")]
    pub class: Class,
    /// Queues of the block device [default: one for each processor of --cores]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub queues: Option<u16>,
    #[command(flatten)]
    pub serving: ServingArgs,
}

impl AttachUblkArgs {
    fn options(&self, rules: ClassRules) -> FrontEndOptions {
        FrontEndOptions::Ublk(UblkOptions {
            id: self.id,
            class: self.class,
            rules,
            read_only: self.serving.read_only,
            queues: self.queues,
            cores: self.serving.cores(),
            poll: self.serving.poll.into(),
            ..UblkOptions::new()
        })
    }
}

fn awaited_path(text: &str) -> Result<PathSpec, PathError> {
    text.parse::<PathSpec>()?.for_awaited()
}

/// Reads a list of one processor.
fn one_core(text: &str) -> Result<u32, String> {
    match text.parse::<Cores>()?.0[..] {
        [core] => Ok(core),
        _ => Err("one thread serves the files: name one processor".to_owned()),
    }
}

#[cfg(test)]
mod tests;
