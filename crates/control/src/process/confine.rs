//! Confinement of the process, whatever a peer or a bug makes of it.
//!
//! Capabilities that a target never needs are dropped at its start. By choice, Landlock keeps it to
//! the files that its configuration names, and a seccomp filter from system calls that no target
//! makes. All of this is inherited by threads, so it comes before the first of them; it cannot be
//! taken back.

use crate::host_keys;
use crate::socket_access::SocketAccess;
use config::schema::{ApiAddress, Configuration, DeviceKind};
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, path_beneath_rules,
};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, sock_filter};
use std::error::Error;
use std::path::{Path, PathBuf};

/// A restriction by choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// Only the files and folders that the configuration and the command line name.
    Landlock,
    /// No programs, no mounts, no other system calls that a target never makes.
    Seccomp,
}

/// The reason for which the process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The kernel refused to drop capabilities.
    #[error("cannot drop capabilities: {0}")]
    Capabilities(#[from] Errno),
    /// The kernel refused the rules of Landlock.
    #[error("--confine landlock: {0}")]
    Landlock(#[from] RulesetError),
    /// The kernel has no Landlock, or only a part of it.
    #[error(
        "--confine landlock: the kernel does not enforce it; boot with lsm=landlock,... or omit \
         the option"
    )]
    NotEnforced,
    /// The kernel refused the filter of system calls.
    #[error("--confine seccomp: {0}")]
    Seccomp(Box<dyn Error + Send + Sync>),
}

/// Paths that Landlock permits.
#[derive(Debug, Default)]
pub struct Paths {
    /// To read.
    read: Vec<PathBuf>,
    /// To read, write, create and remove.
    write: Vec<PathBuf>,
}

impl Paths {
    /// Returns the paths that a target with this configuration uses.
    #[must_use]
    pub fn of(
        configuration: &Configuration,
        config_path: Option<&Path>,
        state_path: Option<&Path>,
    ) -> Self {
        // The kernel tells of processors, threads and block devices there.
        let mut paths = Self {
            read: vec!["/proc".into(), "/sys".into()],
            write: configuration.device_folders.clone(),
        };
        paths
            .read
            .push(host_keys::folder(configuration, config_path));
        // Editors often put another file in its place.
        paths.read.extend(config_path.map(parent_of));
        paths.write.extend(state_path.map(parent_of));
        for file in configuration.api_files.iter() {
            // Where it is a symbolic link, the place that this leads to as well.
            paths.read.push(parent_of(file));
            paths
                .read
                .extend(file.canonicalize().as_deref().map(parent_of));
        }
        if let Some(ApiAddress::Unix(socket)) = &configuration.api {
            paths.write.push(parent_of(socket));
        }
        // The TLS library opens it. Listeners with TLS may be added later.
        paths.read.push("/dev/urandom".into());
        let keys = [
            &configuration.tls_key,
            &configuration.chap_secret,
            &configuration.chap_controller_secret,
        ];
        // SIGHUP reads them again, also if another file is in their place.
        let keys = keys.into_iter().flatten();
        paths.read.extend(keys.map(|file| parent_of(file)));
        // SIGHUP reads its name again.
        paths
            .read
            .extend(configuration.api_socket_group.map(|_| "/etc/group".into()));
        for device in configuration.devices.values() {
            paths.read.extend(device.model.clone());
            paths.read.extend(
                device
                    .crypt
                    .as_ref()
                    .and_then(|crypt| crypt.key_file.clone()),
            );
            if let DeviceKind::File { path, create, .. } = &device.kind {
                let new = *create && !path.exists();
                paths
                    .write
                    .push(if new { parent_of(path) } else { path.clone() });
            }
        }
        paths
    }
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => ".".into(),
    }
}

/// Drops every capability but those that a target may need: low ports, priorities, locked memory,
/// unless it is kept to named files, files of other owners, and to give its socket a group. No program
/// that it starts gets more.
///
/// # Errors
/// What the kernel says.
pub fn drop_capabilities(chosen: &[Confinement], access: SocketAccess) -> Result<(), ConfineError> {
    let mut keep =
        CapabilitySet::NET_BIND_SERVICE | CapabilitySet::SYS_NICE | CapabilitySet::IPC_LOCK;
    if !chosen.contains(&Confinement::Landlock) {
        keep |= CapabilitySet::DAC_OVERRIDE;
    }
    if access.group.is_some() {
        keep |= CapabilitySet::CHOWN;
    }
    let now = rustix::thread::capabilities(None)?;
    let kept = CapabilitySets {
        effective: now.effective & keep,
        permitted: now.permitted & keep,
        inheritable: CapabilitySet::empty(),
    };
    // A service manager may have dropped them, and refuse this system call.
    if (now.effective, now.permitted) != (kept.effective, kept.permitted) {
        rustix::thread::set_capabilities(None, kept)?;
    }
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Puts what was chosen in force for this thread and all that it starts.
///
/// # Errors
/// A kernel that cannot do it: a confinement that was asked for is never omitted silently.
pub fn confine(chosen: &[Confinement], paths: &Paths) -> Result<(), ConfineError> {
    if chosen.contains(&Confinement::Landlock) {
        landlock(paths)?;
    }
    if chosen.contains(&Confinement::Seccomp) {
        seccomp().map_err(ConfineError::Seccomp)?;
    }
    Ok(())
}

fn landlock(paths: &Paths) -> Result<(), ConfineError> {
    // The version of Linux 6.2, the first that also keeps files from being cut.
    let (all, read) = (AccessFs::from_all(ABI::V3), AccessFs::from_read(ABI::V3));
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules(&paths.read, read & !AccessFs::Execute))?
        .add_rules(path_beneath_rules(&paths.write, all & !AccessFs::Execute))?
        .restrict_self()?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        _ => Err(ConfineError::NotEnforced),
    }
}

/// System calls that no target makes. Those that start programs or other processes, change the
/// user, look into other processes, change the machine, or reach files around Landlock.
const REFUSED: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capset,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mknodat,
    libc::SYS_open_by_handle_at,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_personality,
    libc::SYS_vhangup,
];

/// Those that only this kind of machine has.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[libc::SYS_mknod, libc::SYS_iopl, libc::SYS_ioperm];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// The first number of the system calls of x32 programs, which are ways to the same calls around a list
/// of numbers. No other machine has a number so high.
const X32_FIRST: u32 = 0x4000_0000;

fn seccomp() -> Result<(), Box<dyn Error + Send + Sync>> {
    let refused = REFUSED.iter().chain(REFUSED_HERE);
    let refused = refused.map(|&call| (call, Vec::new())).collect();
    let not_permitted = u32::try_from(libc::EPERM).expect("a small number");
    let refuse = libc::SECCOMP_RET_ERRNO | not_permitted;
    let not_permitted = SeccompAction::Errno(not_permitted);
    let machine = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(refused, SeccompAction::Allow, not_permitted, machine)?;
    let program: BpfProgram = filter.try_into()?;
    let load_number = instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let skip_refusal = instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, X32_FIRST, 1);
    let refusal = instruction(libc::BPF_RET | libc::BPF_K, refuse, 0);
    let mut all = vec![load_number, skip_refusal, refusal];
    all.extend(program);
    seccompiler::apply_filter(&all)?;
    Ok(())
}

/// An instruction of a filter; a jump that does not hold skips `otherwise` further ones.
fn instruction(code: u32, operand: u32, otherwise: u8) -> sock_filter {
    sock_filter {
        code: u16::try_from(code).expect("codes have 16 bits"),
        jt: 0,
        jf: otherwise,
        k: operand,
    }
}
