#pragma once

#include "tool/tool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tool {

/// A command that ignores SIGTERM, and so do its children.
class stubborn_run {
public:
    /// @param ttl the value of --ttl, and further options
    stubborn_run(const tables& in, const arguments& ttl)
        : main_{command_line(in(with(ttl))), in.in_environment({.folder = folder_.path()})} {
        REQUIRE(eventually([&] { return pids().size() == 3; }));
        supervisor_ = children_of(main_.id()).at(0);
    }
    /// The ids of bash, a child, and a grandchild whose parent has ended.
    [[nodiscard]] std::vector<pid_t> pids() const { return pids_in(folder_ / "pids"); }
    [[nodiscard]] bool is_alive() const { return std::ranges::any_of(pids(), tool::is_alive); }
    process& main() { return main_; }
    [[nodiscard]] pid_t supervisor() const noexcept { return supervisor_; }
    const scratch& folder() const { return folder_; }

private:
    static arguments with(arguments ttl) {
        ttl.insert(ttl.begin(), {"run", "--ttl"});
        ttl.insert(ttl.end(), {"a", "--", "bash", "-c", script});
        return ttl;
    }

    static constexpr const char* script =
        "trap '' TERM INT HUP; sleep 1000 & echo $! >>pids; (sleep 1000 & echo $! >>pids);"
        "echo $$ >>pids; while :; do sleep 0.1; done";

    scratch folder_;
    process main_;
    pid_t supervisor_ = 0;
};

/// A command that checks, as soon as it has the lock, whether processes of another still live.
inline constexpr const char* look_for_the_living =
    "for p in $(cat pids); do s=$(sed -n 's/^State:.\\(.\\).*/\\1/p' /proc/$p/status 2>/dev/null);"
    "case $s in ''|Z|X) ;; *) echo ALIVE $p;; esac; done; echo started";

}  // namespace tool
