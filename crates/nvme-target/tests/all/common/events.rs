//! Namespace change events, for the test client.

use super::Client;
use wire::nvme::feature::{AsyncEventConfiguration, FeatureId};
use wire::nvme::log_page::{ChangedNamespaces, LogPageId};
use wire::nvme::{AdminCommand, AsyncEvent, GetLogPage, SetFeatures};

/// Enables events of changed namespaces and sends the request for one.
pub fn watch(admin: &mut Client) {
    let wanted = AsyncEventConfiguration::NAMESPACE_ATTRIBUTE.0;
    let set = SetFeatures::new(FeatureId::ASYNC_EVENT_CONFIGURATION, wanted);
    assert!(admin.execute(set.encode(0), &[]).status.is_success());
    let cid = admin.cid();
    admin.capsule(&AdminCommand::AsyncEventRequest.encode(cid), &[]);
}

/// Waits for the event, and returns the changed namespaces.
pub fn changed(admin: &mut Client) -> Vec<u32> {
    let event = AsyncEvent::from_dword(admin.completion().dword0());
    assert_eq!(event, AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED);
    let get = GetLogPage::new(LogPageId::CHANGED_NAMESPACES, 0, 0, 4096);
    let (completion, data) = admin.fetch(get.encode(0), 4096);
    assert!(completion.status.is_success());
    ChangedNamespaces::parse_prefix(&data)
        .expect("4096 bytes")
        .iter()
        .collect()
}
