//! `/v1/devices/{name}/calibration`: measuring a device again while it serves.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};

use super::body::{Body, PathParts};
use super::error::ApiError;
use super::state::ApiState;
use crate::calibration::{CalibrationRequest, CalibrationSnapshot};
use crate::limits::{CALIBRATION_SECONDS, CALIBRATION_SECONDS_DEFAULT, CALIBRATION_SHARE_PERCENT};
use config::{FoundNode, FromNode, Table};

pub(super) fn routes() -> Router<ApiState> {
    Router::new().route(
        "/v1/devices/{name}/calibration",
        get(show).post(start).delete(cancel),
    )
}

/// `{ "share_percent": 10, "seconds": 30 }`
impl FromNode for CalibrationRequest {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let share_percent: Option<u32> = table.required(
            "share_percent",
            "write the share of the device's rate that may be spent, like 10",
        );
        let seconds = table.or("seconds", CALIBRATION_SECONDS_DEFAULT);
        for (key, value, range) in [
            ("share_percent", share_percent, CALIBRATION_SHARE_PERCENT),
            ("seconds", seconds, CALIBRATION_SECONDS),
        ] {
            if let Some(value) = value.filter(|value| !range.contains(value)) {
                table.place(key).report(
                    format!("{value} is out of range"),
                    format!("write {} to {}", range.start(), range.end()),
                );
            }
        }
        table.finish();
        Some(Self {
            share_percent: share_percent?,
            seconds: seconds?,
        })
    }
}

/// Shows the progress of the device's last calibration, or its outcome.
async fn show(
    State(state): State<ApiState>,
    PathParts(name): PathParts<String>,
) -> Result<Json<CalibrationSnapshot>, ApiError> {
    let ask = state.ask(move |control| control.plane().calibration(&name));
    Ok(Json(ask.await??))
}

/// Begins one. The model changes when it is done.
async fn start(
    State(state): State<ApiState>,
    PathParts(name): PathParts<String>,
    body: Body,
) -> Result<(StatusCode, Json<CalibrationSnapshot>), ApiError> {
    let request: CalibrationRequest = body.read()?;
    let begin = state.ask(move |control| {
        control.plane().calibrate(&name, request)?;
        control.plane().calibration(&name)
    });
    Ok((StatusCode::ACCEPTED, Json(begin.await??)))
}

/// Ends one that runs, without a newer model.
async fn cancel(
    State(state): State<ApiState>,
    PathParts(name): PathParts<String>,
) -> Result<StatusCode, ApiError> {
    let cancel = state.ask(move |control| control.plane().cancel_calibration(&name));
    cancel.await??;
    Ok(StatusCode::NO_CONTENT)
}
