//! Descriptions of attachments.

use super::file::Interface;
use crate::attach::source::SourceDevice;
use crate::fuse::Options as FuseOptions;
use crate::nbd::{Address, NbdOptions};
use crate::ublk::UblkOptions;
use crate::vhost::VhostOptions;
use config::ConfigError;
use config::Value;
use control::socket_access::SocketAccess;
use host::CoreId;
use std::path::{Path, PathBuf};
use switch::PathSpec;

/// The attachments of a file.
#[derive(Clone, Debug)]
pub struct File {
    /// The HTTP interface.
    pub interface: Interface,
    /// The attachments, in order.
    pub wanted: Vec<Wanted>,
}

/// Reads and checks the file at a path. Only where the second argument is true may another process write
/// to a pipe there.
pub type ReadFile = fn(&Path, bool) -> Result<File, ConfigError>;

/// The origin of the attachments of a process.
#[derive(Debug)]
pub enum Origin {
    /// The command line names one, with which the process ends.
    One(Box<Wanted>),
    /// A file names them, which is read again at SIGHUP.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reads it.
        read: ReadFile,
        /// The name of the one attachment that this process serves, without the interface of the file;
        /// `None` for all.
        only: Option<String>,
    },
}

/// Reads the attachments of a file that a process serves.
#[derive(Clone, Debug)]
pub(crate) struct FileReader {
    pub(crate) read: ReadFile,
    /// The name of the only one; `None` for all.
    pub(crate) only: Option<String>,
}

impl FileReader {
    /// Reads them; the interface of the file belongs to the process that serves all.
    pub(crate) fn read(&self, path: &Path, waits: bool) -> Result<File, ConfigError> {
        let mut file = (self.read)(path, waits)?;
        if let Some(name) = &self.only {
            file.wanted.retain(|wanted| wanted.name == *name);
            file.interface = Interface::default();
        }
        Ok(file)
    }
}

/// An attachment to be made.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its name, unique in the process.
    pub name: String,
    /// Its device.
    pub device: SourceDevice,
    /// The I/O path of its requests.
    pub path: Option<PathSpec>,
    /// Nice value of its threads.
    pub nice: u8,
    /// Access to its Unix socket, if it has one.
    pub socket_access: SocketAccess,
    /// The front end that serves it.
    pub front_end: FrontEndOptions,
    /// Number of rules that give its requests a class.
    pub class_rules: usize,
    /// Its keys in the file, if there is a file.
    pub entry: Option<Value>,
}

/// A front end with its options. Those that follow from the device are filled in at the start.
#[derive(Clone, Debug)]
pub enum FrontEndOptions {
    /// A server of the NBD protocol.
    Nbd(NbdOptions),
    /// A file for each namespace.
    Fuse(FuseOptions),
    /// A vhost-user back end. A relative path of its socket is one of the working directory.
    Vhost(VhostOptions),
    /// A block device; its identity is that of the device behind it.
    Ublk(UblkOptions),
}

impl FrontEndOptions {
    /// The name of the class of its requests, or `auto`.
    #[must_use]
    pub const fn class_name(&self) -> &'static str {
        match self {
            Self::Nbd(options) => options.class.properties().name,
            Self::Fuse(options) => options.class.name(),
            Self::Vhost(options) => options.class.name(),
            Self::Ublk(options) => options.class.properties().name,
        }
    }

    /// The address that clients connect to, if it is a socket.
    pub(crate) fn address(&self) -> Option<Address> {
        match self {
            Self::Nbd(options) => Some(options.address.clone()),
            Self::Vhost(options) => Some(Address::Unix(options.socket.clone())),
            Self::Fuse(_) | Self::Ublk(_) => None,
        }
    }

    /// Returns the cores of its threads; none if there is one thread, which the kernel places.
    pub(crate) fn cores(&self) -> &[CoreId] {
        match self {
            Self::Nbd(options) => &options.cores,
            Self::Fuse(options) => options.core.as_slice(),
            Self::Vhost(options) => &options.cores,
            Self::Ublk(options) => &options.cores,
        }
    }

    /// The name of the kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Nbd(_) => "nbd",
            Self::Fuse(_) => "fuse",
            Self::Vhost(_) => "vhost",
            Self::Ublk(_) => "ublk",
        }
    }
}
