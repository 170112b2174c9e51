//! Enabling and identifying a controller, step by step. `[NVMe Base 2.0 §3.5.2]`

use super::inquiry::{Inquiry, NamespaceScan, Progress};
use super::{Controller, ControllerState, Purpose};
use super::{Setup, SetupStep};
use crate::association::NamespacesFound;
use crate::discovery::log::LogScan;
use crate::error::ConnectionError;
use crate::info::{CommandLengths, ControllerInfo, Features, Parameters};
use crate::limits::{
    ASK_AGAIN, EXTENTS_MAX, IO_QUEUES_MAX, REPLAY_MARGIN, STATUS_POLL, TRANSFER_BYTES_MAX,
};
use crate::options::{ConnectOptions, ReplayPolicy};
use crate::recovery::status::is_passing;
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use reactor::Context;
use wire::fabrics::property::{Capabilities, Configuration, ControllerStatus};
use wire::fabrics::{FabricsCommand, Property, PropertyGet, PropertySet, PropertySize};
use wire::limits::IDENTIFY_BYTES;
use wire::nvme::feature::{AsyncEventConfiguration, FeatureId, NumberOfQueues};
use wire::nvme::identify::{CSI_NVM, Cns};
use wire::nvme::identify_controller::NvmIdentifyController;
use wire::nvme::vendor::{Extensions, HostExtensions};
use wire::nvme::{
    AdminCommand, Completion, ExtentEntry, ExtentTerms, Identify, IdentifyController, SetFeatures,
};

impl Controller {
    /// Begins the set-up once the admin queue is live.
    pub(super) fn begin_setup(&mut self, cx: &mut Context<'_>) {
        self.setup = Setup::default();
        self.keep_alive_out = false;
        self.keep_alive_at = Time::NEVER;
        self.enter(ControllerState::SettingUp, Time::NEVER);
        let get = PropertyGet {
            size: PropertySize::Eight,
            property: Property::CAP,
        };
        self.ask_fabrics(Purpose::SetUp, &FabricsCommand::PropertyGet(get), cx);
    }

    /// Handles the answer to a command of the set-up.
    pub(super) fn set_up_answered(
        &mut self,
        completion: &Completion,
        data: &[u8],
        cx: &mut Context<'_>,
    ) {
        if self.state() != ControllerState::SettingUp {
            return;
        }
        let status = completion.status;
        let what = match self.setup.step {
            // A passing error: the command is repeated, because the error does not mean that the
            // feature is missing.
            _ if is_passing(status) => "an admin command of the set-up",
            SetupStep::Capabilities => "Property Get of CAP",
            SetupStep::Enable => "Property Set of CC",
            SetupStep::Ready => "Property Get of CSTS",
            SetupStep::Identify => "Identify Controller",
            SetupStep::Queues => "Set Features (Number of Queues)",
            // A controller that does not support these events sends none; an older one does not
            // report limits of its commands.
            SetupStep::Lengths
            | SetupStep::Extensions
            | SetupStep::Fence
            | SetupStep::Events
            | SetupStep::Inquiry => "",
        };
        if !status.is_success() && !what.is_empty() {
            return self.lose(Some(ConnectionError::Refused { what, status }), cx);
        }
        match self.setup.step {
            SetupStep::Capabilities => self.enable(completion, cx),
            SetupStep::Enable => {
                self.setup.step = SetupStep::Ready;
                self.ask_status(Purpose::SetUp, cx);
            }
            SetupStep::Ready => self.is_ready(completion, cx),
            SetupStep::Identify => self.identified(data, cx),
            SetupStep::Lengths => {
                if status.is_success() {
                    self.learn_lengths(data);
                }
                self.extend(cx);
            }
            SetupStep::Extensions => {
                self.setup.parameters.queue_classes &= status.is_success();
                self.fence(cx);
            }
            SetupStep::Queues => self.queues_granted(completion, cx),
            SetupStep::Events => {
                self.events = status.is_success();
                self.begin_inquiry(cx);
            }
            SetupStep::Fence | SetupStep::Inquiry => {}
        }
    }

    fn enable(&mut self, completion: &Completion, cx: &mut Context<'_>) {
        let capabilities = Capabilities::from_bits(completion.result);
        // [NVMe Base 2.0 §3.1.3.1]: CAP.TO is in units of 500 ms; 0 would leave no time at all.
        let patience = Nanos::from_millis(500 * u64::from(capabilities.timeout.max(2)));
        self.setup.ready_by = cx.now + patience;
        self.setup.capabilities = Some(capabilities);
        self.setup.step = SetupStep::Enable;
        let set = PropertySet::configure(Configuration::enable(capabilities.command_sets));
        self.ask_fabrics(Purpose::SetUp, &FabricsCommand::PropertySet(set), cx);
    }

    fn is_ready(&mut self, completion: &Completion, cx: &mut Context<'_>) {
        let status = ControllerStatus(completion.dword0());
        if status.fatal() {
            let error = ConnectionError::Unusable("it reports Controller Fatal Status (CSTS.CFS)");
            return self.lose(Some(error), cx);
        }
        if !status.ready() {
            if self.setup.ready_by <= cx.now {
                let error = ConnectionError::Unusable("it did not become ready within CAP.TO");
                return self.lose(Some(error), cx);
            }
            self.deadline = cx.now + STATUS_POLL;
            return;
        }
        // [NVMe Base 2.0 §3.9]: the keep-alive timer runs from here on, and there may be many
        // namespaces.
        self.keep_alive_at = self.next_keep_alive(cx.now);
        self.setup.step = SetupStep::Identify;
        let identify = AdminCommand::Identify(Identify::new(Cns::CONTROLLER, 0));
        self.ask_admin(Purpose::SetUp, &identify, IDENTIFY_BYTES, cx);
    }

    /// Reads CSTS again.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) {
        self.deadline = Time::NEVER;
        self.ask_status(Purpose::SetUp, cx);
    }

    fn identified(&mut self, data: &[u8], cx: &mut Context<'_>) {
        let Some(identify) = IdentifyController::parse_prefix(data) else {
            let error = ConnectionError::Unusable("its Identify data is too short");
            return self.lose(Some(error), cx);
        };
        let capabilities = self.setup.capabilities.expect("read two steps before");
        let page_bytes = 4096_u32 << capabilities.page_shift_min;
        let options = self.association.options();
        let mut info = ControllerInfo::from_identify(&identify);
        info.cntlid = self.qpair.cntlid;
        info.max_transfer_bytes = identify
            .max_transfer_bytes(page_bytes)
            .map_or(TRANSFER_BYTES_MAX, |bytes| bytes.min(TRANSFER_BYTES_MAX));
        // One entry of a queue always stays empty, hence MQES itself. [NVMe Base 2.0 §3.3.1.2]
        info.queue_depth = options.depth.min(capabilities.max_queue_entries);
        if mutation::active(Mutation::QueueOverfilled) {
            info.queue_depth += 1;
        }
        if identify.maxcmd > 0 {
            info.queue_depth = info.queue_depth.min(identify.maxcmd);
        }
        info.keep_alive_ms = options.kato_ms();
        if info.queue_depth == 0 {
            let error = ConnectionError::Unusable("it reports an I/O queue depth of 0");
            return self.lose(Some(error), cx);
        }
        let wanted = AsyncEventConfiguration::NAMESPACE_ATTRIBUTE
            .with(AsyncEventConfiguration::DISCOVERY_LOG_CHANGE)
            .with(AsyncEventConfiguration::ANA_CHANGE);
        self.setup.ana = identify.cmic & IdentifyController::CMIC_ANA != 0;
        self.setup.wanted_events = AsyncEventConfiguration(identify.oaes & wanted.0);
        let extensions = Extensions::parse(&identify.vendor);
        self.setup.parameters = Parameters {
            cntlid: info.cntlid,
            depth: info.queue_depth,
            io_queues: 0,
            in_capsule_bytes: info.in_capsule_bytes,
            max_transfer_bytes: info.max_transfer_bytes,
            // Limits that every controller accepts, until this one reports its own.
            lengths: CommandLengths {
                write_zeroes_bytes: u64::from(info.max_transfer_bytes),
                verify_bytes: u64::from(info.max_transfer_bytes),
                deallocate_blocks: u32::MAX,
            },
            features: Features {
                compare: info.compare,
                dataset_management: info.dataset_management,
                write_zeroes: info.write_zeroes,
                verify: info.verify,
                volatile_cache: info.volatile_cache,
            },
            fenced: extensions.end_controller,
            queue_classes: extensions.queue_classes,
            extents: extensions
                .extents
                .and_then(|terms| extent_terms(terms, &info)),
            quiet: quiet_time(options, &identify),
            cache_life: extensions.cache_life,
            incarnation: extensions.incarnation,
        };
        self.setup.identified = Some(Box::new(info));
        if options.is_discovery() {
            return self.configure_events(cx);
        }
        self.setup.step = SetupStep::Lengths;
        let identify = Identify::new(Cns::COMMAND_SET_CONTROLLER, 0);
        debug_assert_eq!(identify.command_set, CSI_NVM);
        let identify = AdminCommand::Identify(identify);
        self.ask_admin(Purpose::SetUp, &identify, IDENTIFY_BYTES, cx);
    }

    /// Stores WZSL, VSL, DMRSL and DMSL; values that the controller does not report stay as they
    /// were. `[NVMe NVM 1.0 §4.1.5.2]`
    fn learn_lengths(&mut self, data: &[u8]) {
        let Some(identify) = NvmIdentifyController::parse_prefix(data) else {
            return;
        };
        let capabilities = self.setup.capabilities.expect("read some steps before");
        let page_bytes = 4096_u64 << capabilities.page_shift_min;
        let bytes = |shift: u8| {
            let pages = 1_u64.checked_shl(u32::from(shift));
            pages.map_or(u64::MAX, |pages| page_bytes.saturating_mul(pages))
        };
        let lengths = &mut self.setup.parameters.lengths;
        if identify.wzsl > 0 {
            lengths.write_zeroes_bytes = bytes(identify.wzsl);
        }
        if identify.vsl > 0 {
            lengths.verify_bytes = bytes(identify.vsl);
        }
        if identify.dmrsl > 0 {
            lengths.deallocate_blocks = identify.dmrsl;
        }
        if let Ok(all @ 1..) = u32::try_from(identify.dmsl) {
            lengths.deallocate_blocks = lengths.deallocate_blocks.min(all);
        }
    }

    /// Announces to the controller which of its extensions the host uses.
    fn extend(&mut self, cx: &mut Context<'_>) {
        if !self.setup.parameters.queue_classes {
            return self.fence(cx);
        }
        self.setup.step = SetupStep::Extensions;
        let ours = HostExtensions {
            queue_classes: true,
        };
        let set = SetFeatures::new(FeatureId::HOST_EXTENSIONS, ours.to_dword());
        self.ask_admin(Purpose::SetUp, &AdminCommand::SetFeatures(set), 0, cx);
    }

    /// Returns the name of the answer for which the set-up waits.
    pub(super) fn set_up_awaits(&self) -> &'static str {
        match self.setup.step {
            SetupStep::Fence => self.fence_awaits(),
            _ => "an admin command",
        }
    }

    pub(super) fn ask_queues(&mut self, cx: &mut Context<'_>) {
        self.setup.step = SetupStep::Queues;
        let queues = NumberOfQueues::of(IO_QUEUES_MAX).to_dword();
        let set = SetFeatures::new(FeatureId::NUMBER_OF_QUEUES, queues);
        self.ask_admin(Purpose::SetUp, &AdminCommand::SetFeatures(set), 0, cx);
    }

    fn queues_granted(&mut self, completion: &Completion, cx: &mut Context<'_>) {
        let granted = NumberOfQueues::from_dword(completion.dword0()).pairs();
        let granted = u16::try_from(granted)
            .unwrap_or(u16::MAX)
            .min(IO_QUEUES_MAX);
        self.setup.parameters.io_queues = granted;
        if let Some(info) = &mut self.setup.identified {
            info.io_queues = granted;
        }
        self.configure_events(cx);
    }

    fn configure_events(&mut self, cx: &mut Context<'_>) {
        self.events = false;
        if self.setup.wanted_events.0 == 0 {
            return self.begin_inquiry(cx);
        }
        self.setup.step = SetupStep::Events;
        let wanted = self.setup.wanted_events.0;
        let set = SetFeatures::new(FeatureId::ASYNC_EVENT_CONFIGURATION, wanted);
        self.ask_admin(Purpose::SetUp, &AdminCommand::SetFeatures(set), 0, cx);
    }

    fn begin_inquiry(&mut self, cx: &mut Context<'_>) {
        self.setup.step = SetupStep::Inquiry;
        if let Some(info) = self.setup.identified.take() {
            let parameters = self.setup.parameters;
            self.association.learn_controller(*info, parameters);
        }
        self.inquire(false, cx);
    }

    /// Stores the result of a scan. Namespaces that the controller could not identify are
    /// identified again later, and count as removed after the loss timeout.
    fn namespaces_found(&mut self, mut scan: NamespaceScan, now: Time) {
        if let Some(groups) = scan.groups.take() {
            self.ana_groups = groups;
        }
        if let Some(life) = scan.cache_life {
            self.association.learn_cache_life(life);
        }
        let limit = self.options().final_loss();
        let unidentified = &mut self.unidentified;
        unidentified.retain(|nsid, _| scan.unknown.contains(nsid));
        scan.unknown.retain(|&nsid| {
            let since = *unidentified.entry(nsid).or_insert(now);
            limit.is_none_or(|limit| since + limit > now)
        });
        self.identify_at = if unidentified.is_empty() {
            Time::NEVER
        } else {
            now + ASK_AGAIN
        };
        self.association.learn_namespaces(NamespacesFound {
            found: scan.found,
            unusable: scan.unusable,
            unknown: scan.unknown,
            only: scan.only,
        });
    }

    /// Identifies again, if due, the namespaces that the controller could not identify.
    pub(super) fn identify_again(&mut self, cx: &mut Context<'_>) {
        if self.identify_at > cx.now || self.inquiry.is_some() {
            return;
        }
        self.identify_at = Time::NEVER;
        let scan = NamespaceScan::of(self.unidentified.keys().copied());
        self.inquiry = scan.map(Inquiry::Namespaces);
        self.continue_inquiry(cx);
    }

    fn inquire(&mut self, changed: bool, cx: &mut Context<'_>) {
        self.ask_again = false;
        self.inquiry = Some(if self.options().is_discovery() {
            Inquiry::Discovery(Box::new(LogScan::new()))
        } else {
            Inquiry::Namespaces(NamespaceScan::new(changed, self.setup.ana))
        });
        self.continue_inquiry(cx);
    }

    fn continue_inquiry(&mut self, cx: &mut Context<'_>) {
        if let Some(inquiry) = &self.inquiry {
            let (command, bytes) = inquiry.command();
            self.ask_admin(Purpose::Inquiry, &command, bytes, cx);
        }
    }

    /// Handles an event that reports a change.
    pub(super) fn look_again(&mut self, cx: &mut Context<'_>) {
        if self.inquiry.is_some() {
            self.ask_again = true;
        } else {
            self.inquire(true, cx);
        }
    }

    /// Handles an event that reports a change of ANA states. They alone are read: requests that are
    /// refused meanwhile are repeated for less than the time of a scan of many namespaces.
    pub(super) fn look_at_ana(&mut self, cx: &mut Context<'_>) {
        if self.inquiry.is_some() {
            self.ask_again = true;
        } else if !self.ana_groups.is_empty() {
            let scan = NamespaceScan::of_groups(self.ana_groups.clone());
            self.inquiry = Some(Inquiry::Ana(scan));
            self.continue_inquiry(cx);
        }
    }

    /// Leaves a controller by which no namespace is accessible: the next address is tried.
    fn leave_inaccessible(&mut self, cx: &mut Context<'_>) {
        if self.state() == ControllerState::Live {
            // Somebody moved them: no sign that connections do not last.
            self.backoff.reset();
            // Our target writes its caches back first.
            if self.setup.parameters.cache_life != 0 {
                self.association.note_written_back();
            }
        }
        let address = self.association.address();
        self.lose(Some(ConnectionError::Inaccessible { address }), cx);
    }

    /// Handles the answer to a command of the inquiry.
    pub(super) fn inquiry_answered(
        &mut self,
        completion: &Completion,
        data: &[u8],
        cx: &mut Context<'_>,
    ) {
        let Some(inquiry) = &mut self.inquiry else {
            return;
        };
        let status = completion.status;
        if is_passing(status) && !inquiry.is_of_one_namespace() {
            // An unknown result must not count as absence: a namespace would be given up, or get
            // another identity.
            let what = "Identify, or Get Log Page";
            return self.lose(Some(ConnectionError::Refused { what, status }), cx);
        }
        match inquiry.answer(status, data) {
            Progress::Continue => self.continue_inquiry(cx),
            Progress::Failed(reason) => self.lose(Some(ConnectionError::Unusable(reason)), cx),
            Progress::Finished => {
                match self.inquiry.take() {
                    Some(Inquiry::Namespaces(scan) | Inquiry::Ana(scan)) if scan.inaccessible => {
                        return self.leave_inaccessible(cx);
                    }
                    Some(Inquiry::Namespaces(scan)) => self.namespaces_found(scan, cx.now),
                    Some(Inquiry::Discovery(scan)) => {
                        self.association.learn_discovery(scan.entries);
                    }
                    Some(Inquiry::Ana(_)) | None => {}
                }
                if self.state() == ControllerState::SettingUp {
                    self.go_live(cx);
                }
                if self.ask_again {
                    self.inquire(true, cx);
                }
            }
        }
    }
}

/// Returns the limits of commands over extents: the controller's, within those of this host; `None`
/// if no table fits into a capsule, or less data than a transfer is accepted.
fn extent_terms(terms: ExtentTerms, info: &ControllerInfo) -> Option<ExtentTerms> {
    let entries = info.in_capsule_bytes as usize / ExtentEntry::SIZE;
    let entries = u16::try_from(entries).unwrap_or(u16::MAX);
    let extents = terms.extents.min(EXTENTS_MAX).min(entries);
    let usable = extents > 0 && terms.bytes >= info.max_transfer_bytes;
    usable.then_some(ExtentTerms {
        extents,
        bytes: terms.bytes.min(info.max_transfer_bytes),
        ..terms
    })
}

/// Returns the time after the close of its connections in which a controller must have ended by
/// itself (docs/design/decisions/0004-replay.md): KATO, rounded up to the granularity of the
/// controller's timer (KAS); twice that if any traffic restarts the timer (TBKAS), because the
/// controller then checks once per period whether there was traffic; plus a margin. `[NVMe Base 2.0
/// §3.9]`
pub(super) fn quiet_time(options: &ConnectOptions, identify: &IdentifyController) -> Nanos {
    if options.replay == ReplayPolicy::Immediate || mutation::active(Mutation::FenceNotTimed) {
        return Nanos::ZERO;
    }
    if options.keep_alive == Nanos::ZERO {
        // It notices the loss only by the connection: use the time-out of a command.
        return options.command_timeout + REPLAY_MARGIN;
    }
    let step = Nanos::from_millis(100 * u64::from(identify.kas.max(1)));
    let kato = Nanos::from_millis(options.kato_ms().into());
    let kato = kato.0.div_ceil(step.0) * step.0;
    let traffic_based = identify.ctratt & IdentifyController::CTRATT_TRAFFIC_BASED_KEEP_ALIVE != 0;
    let periods = if traffic_based { 2 } else { 1 };
    Nanos(periods * kato) + REPLAY_MARGIN
}

#[cfg(test)]
mod quiet_time_tests {
    use super::*;
    use crate::options::{HostIdentity, parse_nqn};

    #[test]
    fn lost_writes_wait_until_the_slowest_timer_of_the_controller_has_expired() {
        let nqn = parse_nqn("nqn.2026-11.io.switchyard:default").unwrap();
        let host = HostIdentity::generate();
        let mut options = ConnectOptions::new(([127, 0, 0, 1], 4420).into(), nqn, host);
        let traffic = IdentifyController::CTRATT_TRAFFIC_BASED_KEEP_ALIVE;
        for (keep_alive_ms, kas, ctratt, expected_ms) in [
            (15_000, 0, 0, 15_000),
            (15_000, 1, 0, 15_000),
            (15_050, 1, 0, 15_100),
            (15_000, 100, 0, 20_000),
            (15_000, 1, traffic, 30_000),
            (15_000, 100, traffic, 40_000),
            (u64::from(u32::MAX), u16::MAX, traffic, 8_598_192_000),
            (0, 100, traffic, 30_000),
        ] {
            options.keep_alive = Nanos::from_millis(keep_alive_ms);
            let identify = IdentifyController {
                kas,
                ctratt,
                ..IdentifyController::default()
            };
            let expected = Nanos::from_millis(expected_ms) + REPLAY_MARGIN;
            let quiet = quiet_time(&options, &identify);
            assert_eq!(
                quiet, expected,
                "{keep_alive_ms} ms, KAS {kas}, {ctratt:#x}"
            );
        }
        options.replay = ReplayPolicy::Immediate;
        let quiet = quiet_time(&options, &IdentifyController::default());
        assert_eq!(quiet, Nanos::ZERO);
    }
}
