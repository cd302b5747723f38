#pragma once

#include "support/waits.hpp"
#include "tool/tool.hpp"
#include <rowlock/open.hpp>

#include <doctest/doctest.h>

#include <csignal>
#include <string>

namespace tool {

/// Sends SIGSTOP while nothing writes to an SQLite file: a process that stops during a write blocks
/// all others.
inline void stop_between_writes(const tables& in, const process& which) {
    const bool one_writer = in.url().starts_with("sqlite");
    const auto db = rowlock::open(in.url()).connect(support::soon());
    if (one_writer) db->query("begin immediate", support::soon());
    which.send(SIGSTOP);
    CHECK(eventually([&] {
        const auto status = contents("/proc/" + std::to_string(which.id()) + "/status");
        return status.find("State:\tT") != std::string::npos;
    }));
    if (one_writer) db->query("rollback", support::soon());
}

}  // namespace tool
