//! `switchyard attach`.

use super::device::LocalDevice;
use super::{ApiAuthorityArgs, Cores, HostArgs, Poll, block_size, in_range, one_of};
use base::units::CoreId;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use config::schema::{ApiAddress, BlockSize, DEFAULT_NQN, SocketMode, group_number};
use config::{ConfigError, Keys as _, Spot, Table, Value};
use control::client::Interface;
use control::socket_access::SocketAccess;
use frontend::attach::file::{Entry, Kinds};
use frontend::attach::{
    File, FrontEndOptions, RemoteNamespaces, SourceDevice, Wanted, block_size_of, file,
};
use frontend::nbd::{Address, NbdOptions, TlsOptions};
use frontend::ublk::UblkOptions;
use frontend::vhost::VhostOptions;
use frontend::{ClassChoice, ClassRules, fuse};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use switch::knobs::Preset;
use switch::path::PathError;
use switch::{Class, PathSpec};

/// Expose a namespace or local device over NBD, FUSE, vhost-user or ublk
///
/// Attaches one device with the options of its kind, or all devices of a configuration file
/// (--config). In the file, an attachment has the keys "name" and "kind" and the options of its
/// kind, with "_" instead of "-"; FUSE's DIRECTORY is the key "mountpoint". SIGHUP reads the file
/// again: new attachments are attached, removed ones are detached unless they are in use.
/// An attachment uses a socket passed by systemd (LISTEN_FDS) if the addresses match.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard attach nbd --socket /run/disk.sock --target 127.0.0.1:4420
  switchyard attach --config /etc/switchyard/attach.toml
  switchyard attach --config /etc/switchyard/attach.toml --take-over
  switchyard attachments --api unix:/run/switchyard-attach/api.sock

Exit codes: 0 detached, 1 detached while in use or with unfinished requests, 2 error")]
pub struct AttachArgs {
    #[command(subcommand)]
    pub kind: Option<AttachCommand>,
    /// Configuration file (TOML) with any number of attachments
    #[arg(long, value_name = "FILE", conflicts_with = "api")]
    pub config: Option<PathBuf>,
    /// Attach only this attachment of the file
    ///
    /// For one process per attachment, so that a crash affects only one. Such a process has no HTTP
    /// API: the key "api" of the file is ignored.
    #[arg(long, value_name = "NAME", requires = "config")]
    pub only: Option<String>,
    /// Address of the HTTP API and Prometheus metrics: unix:/PATH or 127.0.0.1:PORT [default: none]
    ///
    /// A Unix socket is accessible to the owner of the process only. On 127.0.0.1:PORT clients need a
    /// bearer token: set SWITCHYARD_API_TOKEN, or SWITCHYARD_API_TOKEN_FILE to the path of a file
    /// with it. With --config, use the key "api" of the file instead, which may be https.
    #[arg(
        long,
        value_name = "ADDRESS",
        global = true,
        help_heading = "Global options"
    )]
    pub api: Option<ApiAddress>,
    /// Take over from the running process with the same arguments, without a disconnect: clients,
    /// mounts, block devices and the API continue in this process, and the other one ends
    ///
    /// For a new version of the program. The running process has the same user. Requests wait for at
    /// most 5 s; virtual machines connect again. If anything fails, the running process continues, and
    /// this one ends with exit code 2. RAM devices and clients with TLS cannot be taken over.
    #[arg(long, global = true, help_heading = "Global options")]
    pub take_over: bool,
}

#[derive(Subcommand, Clone, Debug)]
pub enum AttachCommand {
    Nbd(AttachNbdArgs),
    Fuse(AttachFuseArgs),
    Vhost(AttachVhostArgs),
    Ublk(AttachUblkArgs),
}

impl AttachCommand {
    /// Returns the attachment of the command line, with the name of its kind.
    ///
    /// # Errors
    /// Flags that contradict each other.
    pub fn wanted(&self) -> Result<Wanted, String> {
        config::check_flags(|place| self.check(place))?;
        Ok(self.with(None, ClassRules::default()))
    }

    /// Returns the attachment with these rules before its class; `entry` is its name and its value in a
    /// file.
    fn with(&self, entry: Option<(String, Value)>, rules: ClassRules) -> Wanted {
        let class_rules = rules.len();
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
        let (name, entry) = entry.unzip();
        Wanted {
            name: name.unwrap_or_else(|| front_end.kind().to_owned()),
            device: source.device(read_only),
            path: source.path,
            nice: source.nice,
            socket_access,
            front_end,
            class_rules,
            entry,
        }
    }
}

impl Kinds for AttachCommand {
    const NAMES: &'static [&'static str] = &["nbd", "fuse", "vhost", "ublk"];

    fn read(kind: &str, table: &Table<'_>) -> Option<Self> {
        match kind {
            "nbd" => AttachNbdArgs::read(table).map(Self::Nbd),
            "fuse" => AttachFuseArgs::read(table).map(Self::Fuse),
            "vhost" => AttachVhostArgs::read(table).map(Self::Vhost),
            _ => AttachUblkArgs::read(table).map(Self::Ublk),
        }
    }

    fn check(&self, place: &Spot<'_>) {
        match self {
            Self::Nbd(args) => args.check(place),
            Self::Fuse(args) => args.source.check(place),
            Self::Vhost(args) => args.source.check(place),
            Self::Ublk(args) => args.source.check(place),
        }
    }

    fn knows_process(&self) -> bool {
        matches!(self, Self::Fuse(_))
    }
}

/// Reads and checks the file at `path`. Only if it `waits` may another process write to a pipe there.
///
/// # Errors
/// Every problem found, with file, line and key.
pub fn load(path: &Path, waits: bool) -> Result<File, ConfigError> {
    Ok(of_entries(file::load(path, waits)?))
}

/// Returns the attachments of a file.
fn of_entries(file: file::Entries<AttachCommand>) -> File {
    let wanted = file.attachments.into_iter().map(|entry| {
        let Entry {
            name,
            kind,
            class_rules,
            value,
        } = entry;
        kind.with(Some((name, value)), ClassRules::new(class_rules))
    });
    File {
        interface: file.interface,
        wanted: wanted.collect(),
    }
}

/// Address of the API of a running `switchyard attach`.
#[derive(Args, Clone, Debug)]
pub struct AttachApiArgs {
    /// Address of the HTTP API of the process: unix:/PATH, 127.0.0.1:PORT or https://HOST:PORT
    ///
    /// Over TCP, set SWITCHYARD_API_TOKEN, or SWITCHYARD_API_TOKEN_FILE to the path of a file with the
    /// token.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "unix:/run/switchyard-attach/api.sock"
    )]
    pub api: ApiAddress,
    #[command(flatten)]
    pub authority: ApiAuthorityArgs,
}

impl AttachApiArgs {
    /// Returns the interface.
    pub fn interface(&self) -> Interface {
        self.authority.interface(&self.api)
    }
}

/// List the attachments of a running `switchyard attach`
///
/// The process needs an API: --api, or the key "api" of its configuration file.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard attachments
  switchyard attachments --api unix:/run/attach.sock --json

Exit codes: 0 success, 2 error")]
pub struct AttachmentsArgs {
    #[command(flatten)]
    pub api: AttachApiArgs,
}

/// Detach a device of a running `switchyard attach`
///
/// Outstanding requests have 10 s to finish. A device in use is detached only with --force. The
/// device stays detached until the process restarts or reads its file again (SIGHUP).
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard detach vm1
  switchyard detach vm1 --force --api unix:/run/attach.sock

Exit codes: 0 detached, 2 error, such as a device in use")]
pub struct DetachArgs {
    /// Name of the attachment
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Detach a device in use: later requests of its clients fail
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub api: AttachApiArgs,
}

config::decoded! {
    /// A device to attach: a namespace of a target, or a local device.
    #[derive(Args, Clone, Debug)]
    #[command(group = ArgGroup::new("source").required(true))]
    pub struct SourceArgs {
        /// Address of the NVMe/TCP target: HOST:PORT[,HOST:PORT...]
        #[arg(long, value_name = "ADDRESS", group = "source")]
        pub target: Option<String> = or(None),
        /// NQN of the subsystem [default: nqn.2026-11.io.switchyard:default]
        #[arg(long, value_name = "NQN")]
        pub nqn: Option<String> = or(None),
        /// Namespace ID [default: 1; fuse: all namespaces of the subsystem]
        #[arg(long, value_name = "NSID")]
        pub nsid: Option<u32> = text(str::parse),
        #[command(flatten)]
        pub local: LocalDevice = flat(),
        /// Logical block size of a local device: 512 or 4096 [default: that of the block device,
        /// otherwise 512]
        #[arg(long, value_name = "BYTES", value_parser = block_size)]
        pub block_size: Option<BlockSize> = text(block_size),
        /// I/O path of the requests, such as stm or stm:table_entries=64,handover_us=1000
        ///
        ///   stm, htm, vfs_htm, 2q  merge concurrent requests into one command
        ///   atm                    merges writes
        ///   interrupt, poll        merge adjacent blocks
        ///   sync                   no merging
        ///
        /// Parameters:
        ///
        ///   table_entries  most requests per command [1024]
        ///   handover_us    time after which the queue of a preempted thread is taken over [1000]
        #[arg(long, value_name = "PATH", verbatim_doc_comment, value_parser = awaited_path)]
        pub path: Option<PathSpec> = text(awaited_path),
        /// Time without a connection to the target after which requests fail [default: 0, never]
        ///
        /// Until then requests wait, and are sent when the connection is back. After it, requests fail
        /// at once, while the process keeps reconnecting.
        #[arg(long, value_name = "SECONDS", value_parser = super::seconds)]
        pub io_timeout: Option<Duration> = text(super::seconds),
        /// Preset that emulates another stack, for comparison: linux, nvme-tcp, ... (see
        /// `switchyard bench --help`)
        ///
        /// Start the target with the same preset. The front end still serves class L before T; use
        /// --class T to give all requests one class.
        #[arg(long, value_name = "NAME")]
        pub baseline: Option<Preset> = text(str::parse),
        /// Nice value of the threads, 0 to 19 (lowest CPU priority)
        #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = in_range::<u8>(0..=19))]
        pub nice: u8 = text_or(in_range::<u8>(0..=19), 0),
        #[command(flatten)]
        pub host: HostArgs = flat(),
    }
}

impl SourceArgs {
    /// Reports keys that contradict each other.
    fn check(&self, place: &Spot<'_>) {
        let Some(local) = &self.local.0 else {
            if self.target.is_none() {
                let names = LocalDevice::names().join(", ");
                place.report("names no device", format!("write one of target, {names}"));
            }
            return;
        };
        let local = local.type_name();
        for (key, is_there) in [
            ("target", self.target.is_some()),
            ("nqn", self.nqn.is_some()),
            ("nsid", self.nsid.is_some()),
            ("io_timeout", self.io_timeout.is_some()),
            ("baseline", self.baseline.is_some()),
            ("host_nqn", self.host.host_nqn.is_some()),
            ("digests", self.host.digests),
            ("tls_key", self.host.tls_key.is_some()),
            ("chap_secret", self.host.chap_secret.is_some()),
            (
                "chap_controller_secret",
                self.host.chap_controller_secret.is_some(),
            ),
        ] {
            if is_there {
                let error = format!("is for a target, and cannot be used with {local}");
                place.key(key).report(error, "keep one of them");
            }
        }
    }

    /// Returns the device, which refuses writes if it is a file of this machine and `read_only` is true.
    fn device(&self, read_only: bool) -> SourceDevice {
        if let Some(kind) = &self.local.0 {
            let block_size = self.block_size.unwrap_or_else(|| block_size_of(kind));
            return SourceDevice::Local(kind.clone().with(Some(block_size), read_only));
        }
        let timeout = self.io_timeout.filter(|timeout| !timeout.is_zero());
        let knobs = self.baseline.unwrap_or(Preset::Switchyard).knobs();
        let nqn = self.nqn.as_deref().unwrap_or(DEFAULT_NQN);
        SourceDevice::Remote(Box::new(RemoteNamespaces {
            host: self.host.builder().loss_timeout(timeout).knobs(knobs),
            address: self.target.clone().unwrap_or_default(),
            nqn: nqn.to_owned(),
            nsid: self.nsid,
        }))
    }
}

config::decoded! {
/// Access to the Unix socket of a front end.
#[derive(Args, Clone, Debug)]
pub struct SocketAccessArgs {
    /// Mode of the Unix socket, in octal [default: 0600, or 0660 with --socket-group]
    #[arg(long, value_name = "MODE")]
    pub socket_mode: Option<SocketMode> = text(str::parse),
    /// Group of the Unix socket: name from /etc/group, or number
    #[arg(long, value_name = "GROUP", value_parser = group_number)]
    pub socket_group: Option<u32> = text(group_number),
}
}

impl SocketAccessArgs {
    const fn get(&self) -> SocketAccess {
        SocketAccess {
            mode: self.socket_mode,
            group: self.socket_group,
        }
    }
}

config::decoded! {
/// Options of front ends that may have several threads.
#[derive(Args, Clone, Debug)]
pub struct ServingArgs {
    /// Refuse writes
    #[arg(long)]
    pub read_only: bool = or(false),
    /// CPUs to run on, one thread each, such as 0-3 or 0,2 [default: one thread, not pinned]
    #[arg(long, value_name = "LIST")]
    pub cores: Option<Cores> = text(str::parse),
    /// Idle policy of the threads
    #[arg(long, value_enum, default_value = "auto")]
    pub poll: Poll = text_or(one_of, Poll::Auto),
}
}

impl ServingArgs {
    /// Returns the CPUs to run on.
    pub fn cores(&self) -> Vec<CoreId> {
        let cores = self.cores.iter().flat_map(|cores| &cores.0);
        cores.copied().map(CoreId).collect()
    }
}

config::decoded! {
/// Export the device over NBD
///
/// Prints "ready" and the URI for clients, then serves until SIGTERM or SIGINT. Outstanding requests
/// then have 10 s to finish. The default export uses --class; the exports "latency" and "throughput"
/// have class L and T.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("address").required(true))]
#[command(after_long_help = "Examples:
  switchyard attach nbd --socket /run/disk.sock --target 127.0.0.1:4420
  qemu-img convert image.qcow2 'nbd+unix:///?socket=/run/disk.sock'
  switchyard attach nbd --listen 127.0.0.1:10809 --file disk.img --class L
  nbd-client 127.0.0.1 10809 /dev/nbd0
  switchyard attach nbd --listen 192.0.2.1:10809 --file disk.img \\
      --tls-certificates /etc/pki/nbd --tls-verify-peer

Exit codes: 0 detached, 1 detached while in use or with unfinished requests, 2 error")]
pub struct AttachNbdArgs {
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH", group = "address")]
    pub socket: Option<PathBuf> = or(None),
    #[command(flatten)]
    pub access: SocketAccessArgs = flat(),
    /// Address to listen on; port 0 picks a free port
    ///
    /// Addresses other than loopback need --tls require and --tls-verify-peer.
    #[arg(long, value_name = "HOST:PORT", group = "address")]
    pub listen: Option<Address> = text(str::parse),
    /// Enable TLS with server-cert.pem and server-key.pem of this directory, and with ca-cert.pem and
    /// (optional) ca-crl.pem for --tls-verify-peer
    #[arg(long, value_name = "DIRECTORY")]
    pub tls_certificates: Option<PathBuf> = or(None),
    /// TLS policy for clients [default: require, with certificates]
    #[arg(long, value_enum)]
    pub tls: Option<TlsPolicy> = text(one_of),
    /// Accept only clients with a certificate signed by the CA in ca-cert.pem
    #[arg(long)]
    pub tls_verify_peer: bool = or(false),
    #[command(flatten)]
    pub source: SourceArgs = flat(),
    /// Class of the requests: L (latency) or T (throughput)
    #[arg(long, value_name = "CLASS", default_value = "T")]
    pub class: Class = text_or(str::parse, Class::Throughput),
    #[command(flatten)]
    pub serving: ServingArgs = flat(),
}
}

impl AttachNbdArgs {
    /// Reports keys that contradict each other.
    fn check(&self, place: &Spot<'_>) {
        self.source.check(place);
        match (&self.socket, &self.listen) {
            (None, None) => place.report("has no address", "write one of socket, listen"),
            (Some(_), Some(_)) => {
                let listen = place.key("listen");
                listen.report("cannot be used with socket", "keep one of them");
            }
            _ => {}
        }
        for (key, is_there) in [
            ("socket_mode", self.access.socket_mode.is_some()),
            ("socket_group", self.access.socket_group.is_some()),
        ] {
            if is_there && self.listen.is_some() {
                place
                    .key(key)
                    .report("cannot be used with listen", "omit it");
            }
        }
        for (key, is_there) in [
            ("tls", self.tls.is_some()),
            ("tls_verify_peer", self.tls_verify_peer),
        ] {
            if is_there && self.tls_certificates.is_none() {
                let error = format!("is missing, and {key} needs it");
                let what_to_do = "name the folder of the certificates";
                place.key("tls_certificates").report(error, what_to_do);
            }
        }
    }

    fn options(&self, rules: ClassRules) -> FrontEndOptions {
        let listen = || self.listen.clone().expect("the command line demands one");
        let tls = |certificates: &PathBuf| TlsOptions {
            certificates: certificates.clone(),
            require: self.tls != Some(TlsPolicy::On),
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

/// TLS policy of an NBD server with certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsPolicy {
    /// Clients may use TLS or plain text
    On,
    /// Clients must use TLS
    Require,
}

config::decoded! {
/// Mount the device as a file through FUSE
///
/// The file DIRECTORY/NSID has the size and content of the namespace; a local device is DIRECTORY/1.
/// Prints "ready" for each file, then serves until SIGTERM or SIGINT. If files are open, the first
/// signal waits for close; the second forces exit. Needs /dev/fuse, and, unless run as root,
/// fusermount3 (package fuse3).
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard attach fuse /mnt/disks --target 127.0.0.1:4420
  fio --name=a --filename=/mnt/disks/1 --direct=1 --ioengine=io_uring --rw=randread --bs=4k
  losetup --find --show --direct-io=on --sector-size 4096 /mnt/disks/1

Exit codes: 0 detached, 1 detached while in use or with unfinished requests, 2 error")]
pub struct AttachFuseArgs {
    /// Mount point: an empty directory
    #[arg(value_name = "DIRECTORY")]
    pub mountpoint: PathBuf = required("write an empty directory, like mountpoint = \"/mnt/disks\""),
    #[command(flatten)]
    pub source: SourceArgs = flat(),
    /// Class of the requests: L (latency), T (throughput), or auto: L for threads with a real-time
    /// I/O priority (ionice -c1), otherwise T
    #[arg(long, value_name = "CLASS", default_value = "auto")]
    pub class: ClassChoice = text_or(str::parse, ClassChoice::ByIoPriority),
    /// Refuse writes
    #[arg(long)]
    pub read_only: bool = or(false),
    /// Allow other users to access the files
    ///
    /// Unless run as root, this needs user_allow_other in /etc/fuse.conf.
    #[arg(long)]
    pub allow_other: bool = or(false),
    /// CPU of the serving thread, such as 0 [default: any]
    #[arg(long, alias = "core", value_name = "NUMBER", value_parser = one_core)]
    pub cores: Option<u32> = one_core(),
    /// Idle policy of the serving thread; auto polls while exactly one request is outstanding and no
    /// other thread waits for the CPU
    #[arg(long, value_enum, default_value = "auto")]
    pub poll: Poll = text_or(one_of, Poll::Auto),
}
}

impl AttachFuseArgs {
    fn options(&self, rules: ClassRules) -> FrontEndOptions {
        FrontEndOptions::Fuse(fuse::Options {
            mountpoint: self.mountpoint.clone(),
            class: self.class,
            rules,
            core: self.cores.map(CoreId),
            poll: self.poll.into(),
            allow_other: self.allow_other,
            read_only: self.read_only,
            modified: BTreeMap::new(),
        })
    }
}

config::decoded! {
/// Export the device to a virtual machine over vhost-user
///
/// Serves a vhost-user-blk disk to one virtual machine at a time, which must use shared memory.
/// Prints "ready" and the socket, then serves until SIGTERM or SIGINT. Outstanding requests then have
/// 10 s to finish; a successor completes the remainder.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard attach vhost --socket /run/disk.sock --target 127.0.0.1:4420
  qemu-system-x86_64 -m 4G -object memory-backend-memfd,id=ram,size=4G,share=on \\
      -machine memory-backend=ram -chardev socket,id=disk,path=/run/disk.sock,reconnect=1 \\
      -device vhost-user-blk-pci,chardev=disk …
  cloud-hypervisor --memory size=4G,shared=on --disk vhost_user=true,socket=/run/disk.sock …
  switchyard bench --device vhost:/run/disk.sock --app 'a:rw=randread,bs=4k,depth=32'

Exit codes: 0 detached, 1 detached while in use or with unfinished requests, 2 error")]
pub struct AttachVhostArgs {
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf = required("write a path, like socket = \"/run/vm1.sock\""),
    #[command(flatten)]
    pub access: SocketAccessArgs = flat(),
    #[command(flatten)]
    pub source: SourceArgs = flat(),
    /// Class of the requests: L (latency), T (throughput), or auto: L for guest processes with a
    /// real-time I/O priority (ionice -c1), otherwise T
    #[arg(long, value_name = "CLASS", default_value = "auto")]
    pub class: ClassChoice = text_or(str::parse, ClassChoice::ByIoPriority),
    /// Largest number of request queues [default: 64]
    #[arg(long, value_name = "NUMBER", value_parser = in_range::<u16>(1..=64))]
    pub queues: Option<u16> = text(in_range::<u16>(1..=64)),
    /// Serial number of the disk in the guest, up to 20 bytes [default: 16 hexadecimal digits derived
    /// from the NGUID, EUI-64 or UUID of the namespace, or from the file]
    #[arg(long, value_name = "TEXT")]
    pub serial: Option<String> = or(None),
    #[command(flatten)]
    pub serving: ServingArgs = flat(),
}
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

config::decoded! {
/// Create a block device /dev/ublkbN through ublk
///
/// Needs root and the kernel module ublk_drv (Linux 6.5 or later). Prints "ready" and the path, then
/// serves until SIGTERM or SIGINT. If the block device is open, the first signal waits for close; the
/// second ends the process, and the block device stays. Its requests then wait, as after a crash,
/// until the command is started again with the same --id, which completes them.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  modprobe ublk_drv
  switchyard attach ublk --id 0 --target 127.0.0.1:4420 --cores 0-1
  mkfs.ext4 /dev/ublkb0
  fio --name=a --filename=/dev/ublkb0 --direct=1 --ioengine=io_uring --rw=randread --bs=4k

Exit codes: 0 detached, 1 detached while in use or with unfinished requests, 2 error")]
pub struct AttachUblkArgs {
    #[command(flatten)]
    pub source: SourceArgs = flat(),
    /// Number N of /dev/ublkbN; an existing one is recovered [default: first free]
    #[arg(long, value_name = "N", value_parser = in_range::<u32>(0..=(1 << 20) - 1))]
    pub id: Option<u32> = text(in_range::<u32>(0..=(1 << 20) - 1)),
    /// Class of the requests: L (latency) or T (throughput)
    #[arg(long, value_name = "CLASS", default_value = "T")]
    pub class: Class = text_or(str::parse, Class::Throughput),
    /// Queues of the block device [default: one per CPU of --cores]
    #[arg(long, value_name = "NUMBER", value_parser = in_range::<u16>(1..=64))]
    pub queues: Option<u16> = text(in_range::<u16>(1..=64)),
    #[command(flatten)]
    pub serving: ServingArgs = flat(),
}
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

/// Reads the processor of a front end with one thread, by its name of now or of earlier versions.
trait OneCore {
    fn one_core(&self, key: &'static str) -> Option<Option<u32>>;
}

impl OneCore for Table<'_> {
    fn one_core(&self, key: &'static str) -> Option<Option<u32>> {
        let [cores, core] = [key, "core"].map(|key| self.text(key, one_core));
        match (cores?, core?) {
            (Some(_), Some(_)) => {
                let place = self.place("core");
                place.report("is the earlier name of cores", "keep one of the two");
                None
            }
            (cores, core) => Some(cores.or(core)),
        }
    }
}

/// Parses a list of one CPU.
fn one_core(text: &str) -> Result<u32, String> {
    match text.parse::<Cores>()?.0[..] {
        [core] => Ok(core),
        _ => Err("one thread serves the files; name a single CPU".to_owned()),
    }
}

#[cfg(test)]
mod tests;
