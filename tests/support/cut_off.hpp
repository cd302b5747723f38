#pragma once

#include "support/failure.hpp"
#include "support/interception.hpp"

#include <functional>
#include <string_view>
#include <thread>

namespace support {

/// Calls it; the reply to its commit is lost, and nothing that this thread sends afterwards
/// arrives. Returns whether there was a commit, and the call threw.
inline bool cut_off_after_commit(interception& network, const std::function<void()>& call) {
    const auto tests = std::this_thread::get_id();
    bool committed = false;
    network.after([&](std::string_view what) {
        if (std::this_thread::get_id() != tests) return;
        committed = committed || what == "commit";
        if (committed) interception::lose_reply();
    });
    network.before([&](std::string_view) {
        if (std::this_thread::get_id() == tests && committed) interception::refuse_to_send();
    });
    const bool threw = kind_of(call) != rowlock::errc{};
    network.before({});
    network.after({});
    return committed && threw;
}

}  // namespace support
