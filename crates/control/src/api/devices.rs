//! `/v1/devices`: devices by name.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::body::{Body, PathParts};
use super::error::ApiError;
use super::state::ApiState;
use crate::{disk, folders};
use config::ApplyError;
use config::action::Action;
use config::schema::{Configuration, Device};

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/devices", get(list).post(add))
        .route("/v1/devices/{name}", get(show).delete(remove))
}

/// Returns a device as clients see it: its configuration, and the namespaces that use it.
fn view(configuration: &Configuration, name: &str, device: &Device) -> Value {
    let users: Vec<Value> = configuration
        .users_of(name)
        .map(|(nqn, namespace)| json!({ "nqn": nqn, "nsid": namespace.nsid }))
        .collect();
    json!({ "name": name, "device": device, "used_by": users })
}

async fn list(State(state): State<ApiState>) -> Json<Value> {
    let configuration = state.configuration();
    let devices: Vec<Value> = configuration
        .devices
        .iter()
        .map(|(name, device)| view(&configuration, name, device))
        .collect();
    Json(json!({ "devices": devices }))
}

async fn show(
    State(state): State<ApiState>,
    PathParts(name): PathParts<String>,
) -> Result<Json<Value>, ApiError> {
    let configuration = state.configuration();
    let found = configuration.devices.get(&name);
    let device = found.ok_or_else(|| ApplyError::no_device(&name))?;
    Ok(Json(view(&configuration, &name, device)))
}

config::decoded! {
    /// `{ "name": …, "device": { "type": …, … } }`; with `"force": true` a block device may have
    /// partitions or data.
    struct NamedDevice {
        name: String = required("write the name it gets, like \"fast\""),
        device: Device = required("write what it is, like {\"type\": \"ram\", \"size\": \"1G\"}"),
        force: bool = or(false),
    }
}

async fn add(
    State(state): State<ApiState>,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let NamedDevice {
        name,
        device,
        force,
    } = body.read()?;
    let answer = json!({ "name": name, "device": device, "used_by": [] });
    let add = move |model: &Configuration| {
        // A device of the configuration file may be elsewhere; that is its author's choice.
        if !force && folders::check(&device, &model.device_folders).is_ok() {
            disk::check(&device, &model.device_folders)?;
        }
        Ok(vec![Action::AddDevice { name, device }])
    };
    state.change(add).await?;
    Ok((StatusCode::CREATED, Json(answer)))
}

async fn remove(
    State(state): State<ApiState>,
    PathParts(name): PathParts<String>,
) -> Result<StatusCode, ApiError> {
    state.apply(Action::RemoveDevice { name }).await?;
    Ok(StatusCode::NO_CONTENT)
}
