//! One front end's connection: its shared memory, and its running queues.

use super::inflight::{Inflight, Left};
use super::machine::Machine;
use super::memory::GuestRegions;
use super::ring::{RingSetup, Stopped};
use super::served_disk::{Message, ServedDisk};
use super::take_over;
use super::vring::Vring;
use crate::cache_life::{ABSENT, mark, take_over};
use crate::limits::{GUEST_REGIONS_MAX, VHOST_STOP_TIME, VRING_ENTRIES_MAX};
use crate::served_size::served;
use crate::virtio_blk::config::{driver_flushes, features, space};
use block::Geometry;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVirtioFeatures,
    VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{Queue, QueueT as _};
use vm_memory::GuestAddress;

/// Interval between checks whether the server ends, while a core finishes outstanding requests.
const LOOK: Duration = Duration::from_millis(100);

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Session {
    shared: Arc<ServedDisk>,
    features: u64,
    regions: GuestRegions,
    vrings: Vec<Vring>,
    inflight: Option<Inflight>,
    /// The machine served last, until the connected one proves to be another.
    machine: Machine,
    /// The data left by the machine's last back end has been checked.
    known: bool,
    /// Last known size and block size of the device.
    geometry: Geometry,
    /// Deadline for the device when queues stop: a single one for all queues that stop in
    /// succession.
    stop_by: Option<Instant>,
}

impl Session {
    /// Creates the state of a new connection; `last` is the machine served before.
    pub(super) fn new(shared: Arc<ServedDisk>, geometry: Geometry, last: Machine) -> Self {
        let mut vrings = Vec::new();
        vrings.resize_with(shared.queues.into(), Vring::default);
        Self {
            shared,
            features: 0,
            regions: GuestRegions::default(),
            vrings,
            inflight: None,
            machine: last,
            known: false,
            geometry,
            stop_by: None,
        }
    }

    /// Returns the machine served last, once no queue runs.
    pub(super) fn machine(&self) -> Machine {
        let mut machine = self.machine.clone();
        machine.used.resize(self.vrings.len(), 0);
        let vrings = machine.used.iter_mut().zip(&self.vrings);
        for (used, vring) in vrings.filter(|(_, vring)| vring.served) {
            (machine.files, *used) = (self.regions.files(), vring.used());
        }
        machine
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        let index = usize::try_from(index).map_err(|_| Error::InvalidParam)?;
        self.vrings.get_mut(index).ok_or(Error::InvalidParam)
    }

    fn has(&self, feature: VhostUserVirtioFeatures) -> bool {
        self.features & feature.bits() != 0
    }

    /// Starts or stops a queue to match the front end's current settings.
    fn update(&mut self, index: usize) -> Result<()> {
        let enabled_at_once = !self.has(VhostUserVirtioFeatures::PROTOCOL_FEATURES);
        let vring = &self.vrings[index];
        let wanted = vring.started && (vring.enabled || enabled_at_once);
        match (wanted, vring.runs) {
            (true, false) => self.start(index),
            (false, true) => self.stop(index),
            _ => Ok(()),
        }
    }

    fn start(&mut self, index: usize) -> Result<()> {
        let setup = self.setup(index)?;
        let number = setup.index;
        let used = setup.queue.next_used();
        let begins = self.vrings.iter().all(|vring| !vring.served);
        let is_first = !std::mem::replace(&mut self.vrings[index].served, true);
        if is_first && !self.known && (begins || used != 0) {
            self.recognise(index, used);
        }
        let core = self.shared.core_of(number);
        core.send_always(Message::Start(Box::new(setup)));
        self.vrings[index].runs = true;
        self.stop_by = None;
        Ok(())
    }

    /// Checks a starting queue if no record identifies the machine. If the queue differs from how
    /// it was left, it belongs to another machine, or another back end has served it since.
    fn recognise(&mut self, index: usize, used: u16) {
        // Otherwise the driver may have restarted, and does not rely on earlier requests.
        let goes_on = used != 0;
        if !self.machine.left(&self.regions.files(), index, used) {
            self.known = goes_on;
            self.change_machine(goes_on.then_some(ABSENT));
        }
        if let Some(inflight) = &self.inflight {
            // Earlier losses may not have been reported to it yet.
            let mark = if goes_on { ABSENT } else { self.mark() };
            self.leave(inflight, mark);
        }
    }

    /// Stores this mark for the next back end.
    fn leave(&self, inflight: &Inflight, mark: u32) {
        inflight.leave(Left {
            number: self.machine.number,
            mark,
            volume: self.shared.volume,
        });
    }

    /// Switches to another machine than the last one; `left` is the mark of its last back end.
    fn change_machine(&mut self, left: Option<u32>) {
        let (device, client) = (&*self.shared.device, &self.shared.client);
        self.machine = Machine::new();
        client.begin(device);
        if let Some(left) = left {
            take_over(device, left, client);
        }
    }

    /// Returns the mark to store until the machine flushes: that of the device's current cache
    /// life, or [`ABSENT`] while an earlier loss is still to be reported to the machine.
    fn mark(&self) -> u32 {
        match self.shared.client.count() {
            0 => ABSENT,
            _ => mark(&*self.shared.device),
        }
    }

    /// Validates the front end's settings of a queue, and translates its addresses.
    fn setup(&self, index: usize) -> Result<RingSetup> {
        let vring = &self.vrings[index];
        let number = u16::try_from(index).map_err(|_| Error::InvalidParam)?;
        let [table, available, used] = vring.addresses.ok_or(Error::InvalidParam)?;
        let guest = |user| self.regions.guest_address(user);
        let memory = self.regions.memory();
        let queue = Queue::new(VRING_ENTRIES_MAX).and_then(|mut queue| {
            queue.try_set_size(vring.entries)?;
            Ok(queue)
        });
        let mut queue = queue.map_err(|_| Error::InvalidParam)?;
        let set = |queue: &mut Queue, table, available, used: GuestAddress| {
            queue.try_set_desc_table_address(table)?;
            queue.try_set_avail_ring_address(available)?;
            queue.try_set_used_ring_address(used)
        };
        let addresses = (guest(table)?, guest(available)?, guest(used)?);
        let placed = set(&mut queue, addresses.0, addresses.1, addresses.2);
        placed.map_err(|_| Error::InvalidParam)?;
        queue.set_event_idx(self.features & 1 << VIRTIO_RING_F_EVENT_IDX != 0);
        queue.set_ready(true);
        // The queue's own check accepts address 0, which means that the ring was never placed.
        if !queue.is_valid(&*memory) || addresses.1 == GuestAddress(0) {
            return Err(Error::InvalidParam);
        }
        let next_used = queue.used_idx(&*memory, Ordering::Acquire);
        let next_used = next_used.map_err(|_| Error::InvalidParam)?.0;
        queue.set_next_used(next_used);
        queue.set_next_avail(vring.base);
        let inflight = self.inflight.as_ref();
        let mut inflight = inflight.and_then(|inflight| inflight.queue(number, vring.entries));
        let mut unfinished = Vec::new();
        if let Some(inflight) = &mut inflight {
            unfinished = inflight.recover(next_used);
            unfinished.retain(|&head| head < vring.entries);
            // The base of a killed back end is unknown: it had taken the chains that it completed,
            // and the unfinished ones.
            let taken = u16::try_from(unfinished.len()).map_err(|_| Error::InvalidParam)?;
            queue.set_next_avail(next_used.wrapping_add(taken));
        } else if vring.used() == next_used {
            // Otherwise the driver has restarted, and does not rely on earlier requests.
            unfinished.clone_from(&vring.unfinished);
        }
        Ok(RingSetup {
            index: number,
            queue,
            memory,
            kick: vring.kick.clone(),
            call: copy(vring.call.as_ref())?,
            error: copy(vring.error.as_ref())?,
            inflight,
            unfinished,
            durable: !driver_flushes(self.features),
            log: Arc::clone(&self.shared.log),
        })
    }

    /// Stops a queue once all chains taken from it are completed, or after [`VHOST_STOP_TIME`]: the
    /// front end, and with it the machine, is blocked meanwhile.
    fn stop(&mut self, index: usize) -> Result<()> {
        let stopped = self.begin_stop(index)?;
        self.wait_stopped(index, &stopped)
    }

    /// Sends a core the message to stop a queue.
    fn begin_stop(&mut self, index: usize) -> Result<Receiver<Stopped>> {
        let number = u16::try_from(index).map_err(|_| Error::InvalidParam)?;
        let (done, stopped) = sync_channel(1);
        let core = self.shared.core_of(number);
        core.send_always(Message::Stop(number, done));
        self.vrings[index].runs = false;
        Ok(stopped)
    }

    /// Waits until a core has stopped a queue.
    fn wait_stopped(&mut self, index: usize, stopped: &Receiver<Stopped>) -> Result<()> {
        let (now, limit) = (Instant::now(), Duration::from(VHOST_STOP_TIME));
        let last = self.stop_by.filter(|&last| last + limit > now);
        let stop_by = *self.stop_by.insert(last.unwrap_or(now + limit));
        let answer = match self.wait_until(stopped, Some(stop_by))? {
            Some(answer) => answer,
            None => {
                let number = u16::try_from(index).map_err(|_| Error::InvalidParam)?;
                let core = self.shared.core_of(number);
                core.send_always(Message::Abandon(number));
                self.wait(stopped)?
            }
        };
        if !answer.unfinished.is_empty()
            && let Some(suppressed) = self.shared.log.allow()
        {
            tracing::warn!(
                suppressed,
                requests = answer.unfinished.len(),
                "a queue stops with outstanding requests; they are sent again when it resumes"
            );
        }
        let vring = &mut self.vrings[index];
        (vring.base, vring.unfinished) = (answer.base, answer.unfinished);
        Ok(())
    }

    /// Sends a message to the core of a running queue, and waits until it has taken effect.
    fn tell_running(
        &mut self,
        index: u8,
        message: impl FnOnce(SyncSender<()>) -> Message,
    ) -> Result<()> {
        if self.vring(index.into())?.runs {
            let (done, changed) = sync_channel(1);
            let core = self.shared.core_of(index.into());
            core.send_always(message(done));
            self.wait(&changed)?;
        }
        Ok(())
    }

    /// Waits for a core's reply, at most until the server ends.
    fn wait<T>(&self, answer: &Receiver<T>) -> Result<T> {
        let answer = self.wait_until(answer, None)?;
        answer.ok_or(Error::BackendInternalError)
    }

    /// Waits for a core's reply until `by`; `None` for no limit. A server that ends uses its own
    /// deadline instead, and then fails.
    fn wait_until<T>(&self, answer: &Receiver<T>, by: Option<Instant>) -> Result<Option<T>> {
        loop {
            let end = self.shared.end_by();
            let left = |by: Instant| by.saturating_duration_since(Instant::now());
            let left = end.or(by).map(left);
            match answer.recv_timeout(left.map_or(LOOK, |left| left.min(LOOK))) {
                Ok(answer) => return Ok(Some(answer)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Error::BackendInternalError),
            }
            match left {
                Some(Duration::ZERO) if end.is_some() => return Err(Error::BackendInternalError),
                Some(Duration::ZERO) => return Ok(None),
                _ => {}
            }
        }
    }

    /// Stops all queues in parallel.
    pub(super) fn stop_all(&mut self) -> Result<Vec<usize>> {
        let running = (0..self.vrings.len()).filter(|&index| self.vrings[index].runs);
        let running: Vec<_> = running.collect();
        let begun = running.iter().map(|&index| self.begin_stop(index));
        let begun = begun.collect::<Result<Vec<_>>>()?;
        let mut result = Ok(());
        for (&index, stopped) in running.iter().zip(&begun) {
            if let Err(error) = self.wait_stopped(index, stopped) {
                result = Err(error);
            }
        }
        result.map(|()| running)
    }

    /// Changes the guest's memory while no queue runs.
    fn change_memory(
        &mut self,
        change: impl FnOnce(&mut GuestRegions) -> Result<()>,
    ) -> Result<()> {
        let running = self.stop_all()?;
        change(&mut self.regions)?;
        for index in running {
            self.start(index)?;
        }
        Ok(())
    }
}

fn copy(file: Option<&File>) -> Result<Option<File>> {
    let copied = file.map(File::try_clone).transpose();
    copied.map_err(Error::ReqHandlerError)
}

/// Takes the descriptor of an event counter. A descriptor that is always ready, such as a file,
/// would keep a core busy; a blocking one would stop it.
fn counter(file: Option<File>, is_written: bool) -> Result<Option<File>> {
    let Some(file) = file else { return Ok(None) };
    let failed = |error: rustix::io::Errno| Error::ReqHandlerError(error.into());
    let kind = FileType::from_raw_mode(fstat(&file).map_err(failed)?.st_mode);
    if matches!(
        kind,
        FileType::RegularFile
            | FileType::Directory
            | FileType::BlockDevice
            | FileType::CharacterDevice
    ) {
        return Err(Error::InvalidParam);
    }
    if is_written {
        let flags = fcntl_getfl(&file).map_err(failed)?;
        fcntl_setfl(&file, flags | OFlags::NONBLOCK).map_err(failed)?;
    }
    Ok(Some(file))
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all()?;
        for vring in &mut self.vrings {
            (vring.started, vring.enabled) = (false, false);
        }
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        Ok(features(self.shared.read_only) | protocol)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.get_features()? != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = features;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        // The protocol's own messages enable the negotiated features.
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.shared.queues.into())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        self.change_memory(|known| known.set(regions, files))?;
        Ok(None)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(GUEST_REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        self.change_memory(|known| known.add(region, file))?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.change_memory(|known| known.remove(region))
    }

    fn set_vring_num(&mut self, index: u32, entries: u32) -> Result<()> {
        let entries = u16::try_from(entries).map_err(|_| Error::InvalidParam)?;
        if !entries.is_power_of_two() || entries > VRING_ENTRIES_MAX {
            return Err(Error::InvalidParam);
        }
        self.vring(index)?.entries = entries;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.vring(index)?.addresses = Some([descriptor, available, used]);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.vring(index)?.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let vring = self.vring(index)?;
        vring.started = false;
        self.update(usize::try_from(index).map_err(|_| Error::InvalidParam)?)?;
        let base = self.vring(index)?.base;
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let kick = counter(file, false)?.map(Arc::new);
        let vring = self.vring(index.into())?;
        // A running queue continues with the new counter.
        vring.started = false;
        self.update(index.into())?;
        let vring = self.vring(index.into())?;
        (vring.kick, vring.started) = (kick, true);
        self.update(index.into())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let call = counter(file, true)?;
        self.vring(index.into())?.call = copy(call.as_ref())?;
        self.tell_running(index, |done| Message::Call(index.into(), call, done))
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let error = counter(file, true)?;
        self.vring(index.into())?.error = copy(error.as_ref())?;
        self.tell_running(index, |done| Message::Error(index.into(), error, done))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.vring(index)?.enabled = enable;
        self.update(usize::try_from(index).map_err(|_| Error::InvalidParam)?)
    }

    fn get_config(&mut self, at: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let geometry = served(&*self.shared.device);
        if !geometry.is_gone() {
            self.geometry = geometry;
        }
        // After the device is removed, the disk keeps its size and its requests fail.
        let mut space = space(&self.shared.properties(self.geometry)).to_vec();
        let (at, size) = (at as usize, size as usize);
        // Front ends may know a longer version, whose additional fields are zero.
        space.resize(space.len().max(at + size), 0);
        Ok(space[at..at + size].to_vec())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        // All fields are read-only, and a write has no effect. `[virtio 1.2 §5.2.4]`
        Ok(())
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Inflight::create(wanted)
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let inflight = Inflight::open(given, file)?;
        if let Some(Left {
            number,
            mark,
            volume,
        }) = inflight.left()
        {
            if volume != 0 && self.shared.volume != 0 && volume != self.shared.volume {
                return Err(Error::InvalidOperation(
                    "the virtual machine had another volume at this socket; attach that volume \
                     here, or restart the virtual machine",
                ));
            }
            self.known = true;
            if number != self.machine.number {
                self.change_machine(Some(mark));
            }
            self.leave(&inflight, mark);
        } else if self.known || self.vrings.iter().any(|vring| vring.served) {
            self.leave(&inflight, self.mark());
        }
        take_over::take_over(&self.shared, inflight.clone())?;
        // An empty record of an unidentified machine stays empty until its first queue starts.
        self.inflight = Some(inflight);
        Ok(())
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("not supported by a disk: GPU"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("not supported: shared objects"))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation(
            "not supported: device state transfer",
        ))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation(
            "not supported: device state transfer",
        ))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation(
            "not supported: shared memory regions",
        ))
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(Error::InvalidOperation("not supported: dirty logging"))
    }
}
