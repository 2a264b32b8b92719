//! How a transaction's branches depend on each other, read from dtm's `custom_data`:
//!
//! ```text
//!   saga      {"concurrent": true, "orders": {"2": [0, 1]}}    step 2 after steps 0 and 1
//!   saga      {"outputs": true}                                see local.rs
//!   msg       {"delay": 10}                                    seconds
//!   workflow  {"name": "...", "data": "base64"}
//! ```
//!
//! **Invariant:** the orders that come out of here name steps that exist and make no circle.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::base64;
use super::transaction::Plan;
use super::words::Kind;

#[derive(Deserialize, Default)]
struct SagaData {
    #[serde(default)]
    orders: Option<BTreeMap<String, Vec<u16>>>,
    #[serde(default)]
    concurrent: bool,
    #[serde(default)]
    outputs: bool,
}

#[derive(Deserialize, Default)]
struct MsgData {
    #[serde(default, alias = "Delay")]
    delay: u32,
}

#[derive(Deserialize, Default)]
struct WorkflowData {
    #[serde(default)]
    name: String,
    #[serde(default)]
    data: Option<String>,
}

/// The plan that `custom_data` says, for so many steps.
///
/// # Errors
/// Not JSON of the kind's form; orders that cannot be followed. The text says which.
pub fn plan(kind: Kind, custom_data: &str, steps_count: usize) -> Result<Plan, String> {
    let mut plan = Plan::default();
    if custom_data.is_empty() {
        return Ok(plan);
    }
    let wrong = |error: serde_json::Error| format!("custom_data: {error}");
    match kind {
        Kind::Saga => {
            let data: SagaData = serde_json::from_str(custom_data).map_err(wrong)?;
            plan.concurrent = data.concurrent;
            plan.outputs = data.outputs;
            plan.after = orders(data.orders.unwrap_or_default(), steps_count)?;
        }
        Kind::Msg => {
            let data: MsgData = serde_json::from_str(custom_data).map_err(wrong)?;
            plan.delay_s = data.delay;
        }
        Kind::Workflow => {
            let data: WorkflowData = serde_json::from_str(custom_data).map_err(wrong)?;
            plan.workflow = data.name.into();
            let bytes = base64::decode(&data.data.unwrap_or_default());
            plan.workflow_data = bytes.ok_or("custom_data: data is not base64")?.into();
        }
        Kind::Tcc | Kind::Xa => {}
    }
    Ok(plan)
}

fn orders(orders: BTreeMap<String, Vec<u16>>, steps_count: usize) -> Result<Vec<Vec<u16>>, String> {
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    let mut after = vec![Vec::new(); steps_count];
    for (step, before) in orders {
        let index: usize = step.parse().map_err(|_| format!("orders: {step} is no step"))?;
        let exists = |step: usize| step < steps_count;
        if !exists(index) || !before.iter().all(|&step| exists(usize::from(step))) {
            return Err(format!("orders: a step in {step}: {before:?} does not exist"));
        }
        after[index] = before;
    }
    match has_circle(&after) {
        true => Err("orders: the steps wait for each other in a circle".into()),
        false => Ok(after),
    }
}

/// Takes away what waits for nothing until nothing is left, or nothing more can be taken.
fn has_circle(after: &[Vec<u16>]) -> bool {
    let mut is_done = vec![false; after.len()];
    loop {
        let is_free = |step: &usize| {
            !is_done[*step] && after[*step].iter().all(|&before| is_done[usize::from(before)])
        };
        let free: Vec<usize> = (0..after.len()).filter(is_free).collect();
        if free.is_empty() {
            return is_done.contains(&false);
        }
        free.into_iter().for_each(|step| is_done[step] = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_as_the_go_client_writes_them() {
        let text = r#"{"concurrent":true,"orders":{"2":[0,1]}}"#;
        let plan = plan(Kind::Saga, text, 3).unwrap();
        assert!(plan.concurrent);
        assert_eq!(plan.after, [vec![], vec![], vec![0, 1]]);
    }

    #[test]
    fn orders_that_cannot_be_followed_are_refused() {
        for (text, what) in [
            (r#"{"orders":{"0":[1],"1":[0]}}"#, "circle"),
            (r#"{"orders":{"0":[0]}}"#, "circle"),
            (r#"{"orders":{"0":[7]}}"#, "does not exist"),
            (r#"{"orders":{"9":[0]}}"#, "does not exist"),
            (r#"{"orders":{"x":[0]}}"#, "no step"),
            (r#"{"orders":{"-1":[0]}}"#, "no step"),
            ("nonsense", "custom_data"),
        ] {
            let error = plan(Kind::Saga, text, 2).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn delays_and_workflows() {
        assert_eq!(plan(Kind::Msg, r#"{"delay":7}"#, 1).unwrap().delay_s, 7);
        let workflow = plan(Kind::Workflow, r#"{"name":"n","data":"aGk="}"#, 0).unwrap();
        assert_eq!((&*workflow.workflow, &*workflow.workflow_data), ("n", &b"hi"[..]));
        assert!(plan(Kind::Workflow, r#"{"name":"n","data":"?"}"#, 0).is_err());
        assert_eq!(plan(Kind::Tcc, "anything", 0).unwrap(), Plan::default());
    }
}
