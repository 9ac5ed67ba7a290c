//! Apps in the document.

use http::StatusCode;
use punctual_api::Code;
use punctual_api::schema::named;

use super::Numbers;
use super::described::{Described, QUERY, RECORD};

const TAG: &str = "apps";
const RIGHTS: &[Code] = &[Code::InvalidPermission];
const CHANGED: &[Code] = &[Code::AppNotFound, Code::AppReserved];
const FILES: &[Code] = &[Code::StorageFull, Code::Unavailable];

pub(super) fn create() -> Described {
    Described::new(TAG, "Make an app")
        .detail("Its secret is in this answer, and nowhere else ever after.")
        .takes("NewApp")
        .answers(StatusCode::CREATED, "The app and its secret.", named("IssuedApp"))
        .leads_to("getApp", "app", "/key")
        .leads_to("deleteApp", "app", "/key")
        .refused(RIGHTS)
        .refused(&[Code::InvalidAppKey, Code::AppExists, Code::AppReserved, Code::TooManyApps])
        .refused(RECORD)
        .refused(FILES)
}

pub(super) fn list(numbers: &Numbers) -> Described {
    numbers.named_page(Described::new(TAG, "List apps, by key")).ok("One page.", "AppPage")
}

pub(super) fn get() -> Described {
    let described = Described::new(TAG, "Look at an app");
    described.ok("The app.", "App").refused(QUERY).refused(&[Code::AppNotFound])
}

pub(super) fn patch() -> Described {
    changed("Change what an app may do, and how much")
        .takes("AppChange")
        .ok("The app as it is now.", "App")
        .refused(RIGHTS)
        .refused(&[Code::EmptyChange])
}

pub(super) fn delete() -> Described {
    changed("Delete an app").ok("It is gone.", "Outcome")
}

pub(super) fn rotate() -> Described {
    changed("Give an app another secret")
        .may_take("Rotation")
        .ok("The app and its new secret.", "IssuedApp")
}

pub(super) fn disable() -> Described {
    changed("Let an app in no more").ok("The app as it is now.", "App")
}

pub(super) fn enable() -> Described {
    changed("Let an app in again").ok("The app as it is now.", "App")
}

fn changed(summary: &'static str) -> Described {
    Described::new(TAG, summary).refused(QUERY).refused(CHANGED).refused(RECORD).refused(FILES)
}
