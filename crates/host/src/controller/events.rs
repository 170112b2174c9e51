//! Asynchronous events of the controller. `[NVMe Base 2.0 §5.2]`

use super::{Controller, Purpose, TenantEventsRead};
use reactor::Context;
use wire::nvme::log_page::{LogPageId, TenantEvents};
use wire::nvme::{AdminCommand, AsyncEvent, Completion, GetLogPage};

impl Controller {
    /// Handles an asynchronous event, and asks for the next one. `[NVMe Base 2.0 §5.2]`
    pub(super) fn event(&mut self, completion: &Completion, cx: &mut Context<'_>) {
        if !completion.status.is_success() {
            self.events = false;
            return;
        }
        let event = AsyncEvent::from_dword(completion.dword0());
        if matches!(
            event,
            AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED | AsyncEvent::DISCOVERY_LOG_CHANGE
        ) {
            self.look_again(cx);
        }
        if event == AsyncEvent::TENANT {
            if self.tenant_events == TenantEventsRead::Idle {
                self.read_tenant_events(cx);
            } else {
                self.tenant_events = TenantEventsRead::AskedAgain;
            }
        }
        self.ask_admin(Purpose::Event, &AdminCommand::AsyncEventRequest, 0, cx);
    }

    /// Takes note of the log page of tenants' events. A page that is refused, or too short, has no
    /// event.
    pub(super) fn tenant_events_read(
        &mut self,
        completion: &Completion,
        data: &[u8],
        cx: &mut Context<'_>,
    ) {
        let page = TenantEvents::parse_prefix(data);
        if let Some(page) = page.filter(|_| completion.status.is_success()) {
            self.association.note_tenant_events(&page);
        }
        if self.tenant_events == TenantEventsRead::AskedAgain {
            return self.read_tenant_events(cx);
        }
        self.tenant_events = TenantEventsRead::Idle;
    }

    fn read_tenant_events(&mut self, cx: &mut Context<'_>) {
        self.tenant_events = TenantEventsRead::Asked;
        let bytes = u32::try_from(TenantEvents::SIZE).expect("4096");
        let get = GetLogPage::new(LogPageId::TENANT_EVENTS, 0, 0, bytes);
        let get = AdminCommand::GetLogPage(get);
        self.ask_admin(Purpose::TenantEvents, &get, TenantEvents::SIZE, cx);
    }
}
