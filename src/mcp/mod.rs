//! Serves the questions to assistants: a server of the Model Context Protocol on lines of JSON.
//!
//! ```text
//! lines ─→ message ─→ session ─→ tools ─→ Histories
//!                        ↓ a thread answers calls; others are answered at once
//!                     replies
//! ```
//!
//! The server reads nothing but the input that it was started with, and writes nothing. It needs the
//! subset of JSON-RPC 2.0 for tools only; `docs/mcp.md` says which.

mod answer;
mod arguments;
mod line;
mod message;
mod replies;
mod session;
mod tools;

pub use session::serve;
