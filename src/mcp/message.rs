//! Messages of JSON-RPC 2.0 (<https://www.jsonrpc.org/specification>), as far as tools need them.

use serde_json::{Map, Value, json};

/// Errors of JSON-RPC 2.0, section 5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Malformed = -32700,
    Invalid = -32600,
    NoMethod = -32601,
    Parameters = -32602,
    /// Of this server: it has too much to do.
    Busy = -32000,
}

/// Why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub code: Code,
    pub message: String,
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }
}

/// A message from the client.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    /// It wants a reply with this ID.
    Request(Value, String, Map<String, Value>),
    /// It wants none.
    Notification(String, Map<String, Value>),
    /// A response, though the server asks for nothing.
    Response,
    /// Not a message; with its ID, as far as it has one.
    Refused(Value, Refusal),
}

impl Message {
    /// Reads a message.
    pub fn of(value: Value) -> Self {
        let refused =
            |id: Value, message: &str| Self::Refused(id, Refusal::new(Code::Invalid, message));
        let Value::Object(mut fields) = value else {
            return refused(Value::Null, "expected an object");
        };
        let id = fields.remove("id");
        let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
        let shown = id.clone().filter(is_id).unwrap_or(Value::Null);
        if fields.get("jsonrpc") != Some(&Value::from("2.0")) {
            return refused(shown, "expected \"jsonrpc\": \"2.0\"");
        }
        let method = match fields.remove("method") {
            Some(Value::String(method)) => method,
            None if fields.contains_key("result") || fields.contains_key("error") => {
                return Self::Response;
            }
            _ => return refused(shown, "expected the name of a method"),
        };
        let parameters = match fields.remove("params") {
            Some(Value::Object(parameters)) => parameters,
            None => Map::new(),
            Some(_) => {
                let message = "expected parameters by name";
                let refusal = Refusal::new(Code::Parameters, message);
                return Self::Refused(shown, refusal);
            }
        };
        match id {
            None => Self::Notification(method, parameters),
            Some(id) if is_id(&id) => Self::Request(id, method, parameters),
            Some(_) => refused(Value::Null, "expected an ID that is a string or an integer"),
        }
    }
}

/// Makes the response to a request.
pub(super) fn response(id: &Value, result: Result<Value, Refusal>) -> Value {
    match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(Refusal { code, message }) => json!({
            "jsonrpc": "2.0",
            "id": id,
            "error": { "code": code as i32, "message": message },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let of = |text: &str| Message::of(serde_json::from_str(text).unwrap());
        let request = of(r#"{"jsonrpc": "2.0", "id": "a", "method": "ping"}"#);
        let wanted = Message::Request("a".into(), "ping".to_owned(), Map::new());
        assert_eq!(request, wanted);
        let notification = of(r#"{"jsonrpc": "2.0", "method": "x", "params": {}}"#);
        assert_eq!(
            notification,
            Message::Notification("x".to_owned(), Map::new())
        );
        let response = of(r#"{"jsonrpc": "2.0", "id": 1, "result": {}}"#);
        assert_eq!(response, Message::Response);
        for (text, id) in [
            ("1", Value::Null),
            (r#"{"id": 1, "method": "ping"}"#, 1.into()),
            (r#"{"jsonrpc": "2.0", "id": 1}"#, 1.into()),
            (r#"{"jsonrpc": "2.0", "id": 1, "method": 2}"#, 1.into()),
            (
                r#"{"jsonrpc": "2.0", "id": 1, "method": "x", "params": [1]}"#,
                1.into(),
            ),
            (
                r#"{"jsonrpc": "2.0", "id": null, "method": "x"}"#,
                Value::Null,
            ),
            (
                r#"{"jsonrpc": "2.0", "id": 1.5, "method": "x"}"#,
                Value::Null,
            ),
        ] {
            let found = of(text);
            assert!(
                matches!(&found, Message::Refused(found, _) if *found == id),
                "{text}: {found:?}"
            );
        }
    }
}
