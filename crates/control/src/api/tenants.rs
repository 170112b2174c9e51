//! `/v1/tenants`: declared tenants, their SLOs, and the service they received.

use std::hash::{DefaultHasher, Hasher as _};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::body::{Body, PathParts};
use super::error::ApiError;
use super::state::ApiState;
use crate::control::ChangeError;
use crate::snapshot::{Snapshot, TenantSnapshot};
use config::ApplyError;
use config::action::Action;
use config::schema::{Configuration, DEFAULT_TENANT, Tenant};

/// All tenants of a target.
#[derive(Debug, Serialize, Deserialize)]
pub struct TenantList {
    /// Hosts of no declared tenant are served as the default tenant.
    pub default_tenant: bool,
    /// The tenants.
    pub tenants: Vec<TenantAnswer>,
    /// Devices with a model.
    pub devices: Vec<SharedDevice>,
}

/// A device that tenants share.
#[derive(Debug, Serialize, Deserialize)]
pub struct SharedDevice {
    /// The device's name.
    pub device: String,
    /// Tokens generated in a second.
    pub tokens_per_second: u64,
    /// Of these, reserved for SLOs of latency-critical tenants.
    pub reserved_tokens_per_second: u64,
}

/// One tenant.
#[derive(Debug, Serialize, Deserialize)]
pub struct TenantAnswer {
    /// The declaration.
    pub tenant: Tenant,
    /// The service on each device.
    pub devices: Vec<ServedTenant>,
}

/// The service of a tenant on a device.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServedTenant {
    /// The device's name.
    pub device: String,
    /// The service.
    pub served: TenantSnapshot,
}

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/tenants", get(list).post(add).patch(set_others))
        .route("/v1/tenants/{name}", get(show).put(set).delete(remove))
}

/// A tenant as clients see it: what is declared, and what it was served on each device.
fn view(tenant: &Tenant, snapshot: &Snapshot) -> TenantAnswer {
    let devices = snapshot.devices.iter().filter_map(|device| {
        let mut tenants = device.tenants.iter();
        let served = tenants.find(|served| served.name == tenant.name)?;
        Some(ServedTenant {
            device: device.name.clone(),
            served: served.clone(),
        })
    });
    TenantAnswer {
        tenant: tenant.clone(),
        devices: devices.collect(),
    }
}

/// Returns the tenants, with the default one also where it is not declared.
fn tenants(configuration: &Configuration) -> Vec<Tenant> {
    let mut tenants = configuration.tenants.clone();
    let declared = tenants.iter().any(|tenant| tenant.name == DEFAULT_TENANT);
    if configuration.default_tenant && !declared {
        tenants.push(Tenant::new(DEFAULT_TENANT));
    }
    tenants
}

async fn list(State(state): State<ApiState>) -> Result<Json<TenantList>, ApiError> {
    let snapshot = state.snapshot().await?;
    let configuration = state.configuration();
    let tenants = tenants(&configuration);
    let devices = snapshot.devices.iter().map(|device| SharedDevice {
        device: device.name.clone(),
        tokens_per_second: device.tokens_per_second,
        reserved_tokens_per_second: device.reserved_tokens_per_second,
    });
    Ok(Json(TenantList {
        default_tenant: configuration.default_tenant,
        tenants: tenants.iter().map(|one| view(one, &snapshot)).collect(),
        devices: devices.collect(),
    }))
}

async fn show(
    State(state): State<ApiState>,
    PathParts(name): PathParts<String>,
) -> Result<Response, ApiError> {
    let snapshot = state.snapshot().await?;
    let tenant = find(&state.configuration(), &name)?;
    let tag = [(header::ETAG, entity_tag(&tenant))];
    Ok((tag, Json(view(&tenant, &snapshot))).into_response())
}

/// Returns the tenant of this name.
pub(super) fn find(configuration: &Configuration, name: &str) -> Result<Tenant, ApiError> {
    let mut tenants = tenants(configuration).into_iter();
    let found = tenants.find(|tenant| tenant.name == name);
    found.ok_or_else(|| missing(name).into())
}

/// Tells one declaration of a tenant from another, while this process lives. `[RFC 9110 §8.8.3]`
fn entity_tag(tenant: &Tenant) -> String {
    let text = serde_json::to_string(tenant).expect("a tenant has a form in JSON");
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    format!("\"{:016x}\"", hasher.finish())
}

/// Refuses a request with an `If-Match` of an older version of the tenant than the one in force.
/// `[RFC 9110 §13.1.1]`
fn check_seen(headers: &HeaderMap, before: &Configuration, name: &str) -> Result<(), ApplyError> {
    let mut seen = headers.get_all(header::IF_MATCH).iter().peekable();
    if seen.peek().is_none() {
        return Ok(());
    }
    let all = tenants(before);
    let tag = all.iter().find(|it| it.name == name).map(entity_tag);
    let tags = seen.flat_map(|tags| tags.as_bytes().split(|&byte| byte == b','));
    let mut tags = tags.map(<[u8]>::trim_ascii);
    if tag.is_some_and(|tag| tags.any(|seen| seen == b"*" || seen == tag.as_bytes())) {
        return Ok(());
    }
    Err(ApplyError::outdated(
        format!("tenant {name:?} is not what If-Match says any more"),
        "read it again, and decide by what it is now",
    ))
}

fn missing(name: &str) -> ApplyError {
    ApplyError::not_found(
        format!("there is no tenant {name:?}"),
        "list the tenants with `switchyard tenant list` or GET /v1/tenants",
    )
}

/// The action that makes `change` to the tenants in force.
fn changed(
    before: &Configuration,
    change: impl FnOnce(&mut Vec<Tenant>) -> Result<(), ApplyError>,
) -> Result<Vec<Action>, ChangeError> {
    let mut tenants = before.tenants.clone();
    change(&mut tenants)?;
    tenants.sort_by(|a, b| a.name.cmp(&b.name));
    if tenants == before.tenants {
        return Ok(Vec::new());
    }
    Ok(vec![Action::SetTenants {
        tenants,
        default_tenant: before.default_tenant,
    }])
}

/// Adds the tenant of the body. An SLO that a device cannot keep is a conflict, with an error
/// that says what would be admitted.
async fn add(State(state): State<ApiState>, body: Body) -> Result<Response, ApiError> {
    let tenant: Tenant = body.read()?;
    let name = tenant.name.clone();
    let decide = move |before: &Configuration| {
        changed(before, |tenants| {
            if tenants.iter().any(|other| other.name == tenant.name) {
                return Err(ApplyError::conflict(
                    format!("there is a tenant {:?} already", tenant.name),
                    "change it with `switchyard tenant set` or PUT, or choose another name",
                ));
            }
            tenants.push(tenant);
            Ok(())
        })
    };
    state.change(decide).await?;
    let view = show(State(state), PathParts(name)).await?;
    Ok((StatusCode::CREATED, view).into_response())
}

/// Replaces or adds the tenant with the one of the body, which is in force when it answers. With
/// `If-Match` only where the tenant has not changed since.
async fn set(
    State(state): State<ApiState>,
    PathParts(name): PathParts<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let tenant: Tenant = body.read()?;
    if tenant.name != name {
        return Err(ApiError::bad_request(
            format!(
                "the body is tenant {:?}, and the path {name:?}",
                tenant.name
            ),
            "name the same tenant in both; another name is another tenant",
        ));
    }
    let decide = move |before: &Configuration| {
        check_seen(&headers, before, &tenant.name)?;
        changed(before, |tenants| {
            tenants.retain(|other| other.name != tenant.name);
            tenants.push(tenant);
            Ok(())
        })
    };
    state.change(decide).await?;
    show(State(state), PathParts(name)).await
}

config::decoded! {
    /// `{ "default_tenant": false }`
    struct OthersServed {
        default_tenant: bool = required(
            "write whether hosts that are no tenant are served: true or false"
        ),
    }
}

/// Serves hosts that are no tenant, or refuses them from now on: those that are connected, too.
async fn set_others(State(state): State<ApiState>, body: Body) -> Result<Json<Value>, ApiError> {
    let OthersServed { default_tenant } = body.read()?;
    let decide = move |before: &Configuration| {
        if before.default_tenant == default_tenant {
            return Ok(Vec::new());
        }
        Ok(vec![Action::SetTenants {
            tenants: before.tenants.clone(),
            default_tenant,
        }])
    };
    state.change(decide).await?;
    Ok(Json(json!({ "default_tenant": default_tenant })))
}

/// Removes a tenant: its hosts belong to the default tenant from then on, where that is served. With
/// `If-Match` only where the tenant has not changed since.
async fn remove(
    State(state): State<ApiState>,
    PathParts(name): PathParts<String>,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let decide = move |before: &Configuration| {
        check_seen(&headers, before, &name)?;
        changed(before, |tenants| {
            let count = tenants.len();
            tenants.retain(|other| other.name != name);
            if tenants.len() == count {
                return Err(missing(&name));
            }
            Ok(())
        })
    };
    state.change(decide).await?;
    Ok(StatusCode::NO_CONTENT)
}
