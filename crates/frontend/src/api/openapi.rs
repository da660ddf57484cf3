//! The OpenAPI document, made from the table of routes.

use serde_json::{Map, Value, json};

use super::reply;
use super::routes::{Parameter, ROUTES, Route, Verb};

/// Returns the document.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[verb(route)] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "thalweg",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What a run does now, and requests to it.",
        },
        "paths": paths,
        "components": { "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } } },
    })
}

fn verb(route: &Route) -> &'static str {
    match route.method {
        Verb::Get => "get",
        Verb::Post => "post",
    }
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": format!("{:?}", route.operation),
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": responses(route),
    });
    if route.path.starts_with("/api/") {
        operation["security"] = json!([{}, { "token": [] }]);
    }
    if !route.entries.is_empty() {
        operation["requestBody"] =
            json!({ "required": true, "content": { (reply::JSON): { "schema": object(route) } } });
    } else if route.method == Verb::Post {
        let schema = json!({ "schema": { "type": "object" } });
        operation["requestBody"] = json!({ "required": false, "content": { (reply::JSON): schema } });
    }
    operation
}

/// The parameters of the path and of the query.
fn parameters(route: &Route) -> Vec<Value> {
    let parts = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let of_path = parts
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let of_query = route.parameters.iter().map(|Parameter { name, about, form, is_required }| {
        json!({
            "name": name,
            "in": "query",
            "description": about,
            "required": is_required,
            "schema": { "type": form },
        })
    });
    of_path.chain(of_query).collect()
}

/// The schema of the body.
fn object(route: &Route) -> Value {
    let property = |entry: &Parameter| {
        (entry.name.to_owned(), json!({ "type": entry.form, "description": entry.about }))
    };
    let required = route.entries.iter().filter(|entry| entry.is_required).map(|entry| entry.name);
    json!({
        "type": "object",
        "properties": route.entries.iter().map(property).collect::<Map<_, _>>(),
        "required": required.collect::<Vec<_>>(),
    })
}

fn responses(route: &Route) -> Value {
    let mut responses =
        json!({ "200": { "description": route.summary, "content": { (of_type(route)): {} } } });
    let refusal = json!({
        "description": "why not",
        "content": { (reply::JSON): { "schema": {
            "type": "object",
            "properties": { "error": { "type": "string" } },
        } } },
    });
    if route.path.starts_with("/api/") {
        responses["4XX"] = refusal;
    } else {
        responses["503"] = json!({ "description": "not now" });
    }
    responses
}

/// The type of an answer, without its parameters.
fn of_type(route: &Route) -> &'static str {
    route.gives.split(';').next().unwrap_or(route.gives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_in_the_document() {
        let document = document();
        for route in &ROUTES {
            let operation = &document["paths"][route.path][verb(route)];
            assert_eq!(operation["summary"], route.summary, "{}", route.path);
            let names: Vec<_> = operation["parameters"].as_array().unwrap().iter().collect();
            let parts = route.path.matches('{').count();
            assert_eq!(names.len(), route.parameters.len() + parts, "{}", route.path);
            assert_eq!(operation.get("requestBody").is_some(), route.method == Verb::Post, "{}", route.path);
        }
        let found: usize =
            document["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(found, ROUTES.len());
    }
}
