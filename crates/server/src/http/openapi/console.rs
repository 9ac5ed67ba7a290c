//! The console in the document: sessions, live figures, and the pages themselves.

use http::StatusCode;
use punctual_api::Code;
use punctual_api::schema::{named, text};

use super::described::{Described, QUERY};

const TAG: &str = "console";

pub(super) fn session() -> Described {
    Described::new(TAG, "Who is signed in at this browser")
        .detail("Also answered where nobody is.")
        .ok("Who, and what they may do.", "Session")
        .refused(QUERY)
}

pub(super) fn sign_in() -> Described {
    Described::new(TAG, "Sign in at a browser")
        .detail(
            "Sets a cookie that counts for twelve hours. Changes that are asked for with it need the \
             header `X-Punctual-Csrf` with what `csrf` says.",
        )
        .takes("SignIn")
        .answers(StatusCode::CREATED, "Signed in.", named("Session"))
        .refused(&[Code::InvalidField, Code::Unauthenticated])
}

pub(super) fn sign_out() -> Described {
    Described::new(TAG, "Sign out")
        .answers_content(StatusCode::NO_CONTENT, "Signed out.", Vec::new())
        .refused(&[Code::Csrf])
        .refused(QUERY)
}

pub(super) fn live() -> Described {
    Described::new(TAG, "Figures once a second")
        .detail("Server-sent events without end: each `figures` has a `LiveFigures` as its data.")
        .answers_content(
            StatusCode::OK,
            "Events.",
            vec![("text/event-stream", named("LiveFigures"))],
        )
        .refused(QUERY)
}

pub(super) fn page() -> Described {
    Described::new(TAG, "The console").answers_content(
        StatusCode::OK,
        "A page for a browser.",
        vec![("text/html; charset=utf-8", text())],
    )
}

pub(super) fn asset() -> Described {
    Described::new(TAG, "What the console is made of")
        .answers_content(
            StatusCode::OK,
            "Script or style.",
            vec![("text/javascript; charset=utf-8", text()), ("text/css; charset=utf-8", text())],
        )
        .refused(&[Code::RouteNotFound])
}
