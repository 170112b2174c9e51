//! `/v1/referrals`: other discovery controllers. A referral is named by all that it says, so
//! that a deletion carries the same body as an addition.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::body::Body;
use super::error::ApiError;
use super::state::ApiState;
use config::action::Action;
use config::schema::Referral;

pub(super) fn routes() -> Router<ApiState> {
    Router::new().route("/v1/referrals", get(list).post(add).delete(remove))
}

async fn list(State(state): State<ApiState>) -> Json<Value> {
    Json(json!({ "referrals": state.configuration().discovery.referrals }))
}

async fn add(
    State(state): State<ApiState>,
    body: Body,
) -> Result<(StatusCode, Json<Referral>), ApiError> {
    let referral: Referral = body.read()?;
    let answer = referral.clone();
    state.apply(Action::AddReferral { referral }).await?;
    Ok((StatusCode::CREATED, Json(answer)))
}

async fn remove(State(state): State<ApiState>, body: Body) -> Result<StatusCode, ApiError> {
    let referral: Referral = body.read()?;
    state.apply(Action::RemoveReferral { referral }).await?;
    Ok(StatusCode::NO_CONTENT)
}
