// A host in Rust over what bindgen reads in kaiju.h: two streams in one loop.
#![allow(non_upper_case_globals, non_camel_case_types, dead_code)]
mod kaiju {
    include!(concat!(env!("KAIJU_BINDINGS"), "/kaiju.rs"));
}
use kaiju::*;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

unsafe fn must(status: kaiju_status, error: *mut kaiju_error) {
    if status != KAIJU_OK as kaiju_status {
        panic!("{}", CStr::from_ptr(kaiju_error_message(error)).to_string_lossy());
    }
}

fn main() {
    let path = CString::new(std::env::args().nth(1).expect("a checkpoint")).unwrap();
    unsafe {
        let mut error: *mut kaiju_error = null_mut();
        let (mut model, mut engine, mut options) = (null_mut(), null_mut(), null_mut());
        must(kaiju_model_load(null_mut(), path.as_ptr(), null(), None, null_mut(), &mut model, &mut error), error);
        must(kaiju_engine_create(model, null(), &mut engine, &mut error), error);
        must(kaiju_options_create(&mut options), error);
        must(kaiju_options_set_int(options, KAIJU_GENERATE_MAX_TOKENS as kaiju_option, 12, &mut error), error);
        must(kaiju_options_set_int(options, KAIJU_GENERATE_STOP_TOKEN as kaiju_option, -1, &mut error), error);
        let prompt = [1i32, 20, 30];
        let mut replies: BTreeMap<kaiju_request, Vec<i32>> = BTreeMap::new();
        let mut sessions = Vec::new();
        for _ in 0..2 {
            let mut session = null_mut();
            let mut request: kaiju_request = 0;
            must(kaiju_session_create(engine, &mut session, &mut error), error);
            must(
                kaiju_engine_submit(engine, session, prompt.as_ptr(), prompt.len(), options, null_mut(), &mut request, &mut error),
                error,
            );
            replies.insert(request, Vec::new());
            sessions.push(session);
        }
        let mut done = 0;
        while kaiju_engine_pending(engine) > 0 {
            must(kaiju_engine_step(engine, &mut error), error);
            let mut events: [kaiju_event; 8] = std::mem::zeroed();
            let mut count: usize = 0;
            let size = std::mem::size_of::<kaiju_event>();
            must(kaiju_engine_poll(engine, events.as_mut_ptr(), size, events.len(), &mut count, &mut error), error);
            for event in &events[..count] {
                if event.kind == KAIJU_EVENT_TOKEN as i32 {
                    replies.get_mut(&event.request).unwrap().push(*event.tokens);
                } else if event.kind == KAIJU_EVENT_DONE as i32 {
                    done += 1;
                }
            }
        }
        let all: Vec<_> = replies.values().collect();
        assert!(done == 2 && all.len() == 2 && all[0].len() == 12 && all[0] == all[1]);
        for session in sessions {
            kaiju_session_destroy(session);
        }
        kaiju_options_destroy(options);
        kaiju_engine_destroy(engine);
        kaiju_model_destroy(model);
    }
    println!("two streams of 12 tokens");
}
