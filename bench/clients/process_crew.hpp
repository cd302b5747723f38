#pragma once

#include "common/measure.hpp"
#include "common/tables.hpp"

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace bench {

/// The part of one process of a crew: a client with a lock of its own.
struct crew_member {
    std::string url{};
    std::string prefix{};
    std::string lock{};
};

/// Processes of this program, with a client and a lock each, that take and release it in rounds.
class process_crew {
public:
    /// Starts them; each has acquired its lock once when this returns.
    process_crew(const tables& where, int processes);
    process_crew(const process_crew&) = delete;
    process_crew& operator=(const process_crew&) = delete;
    ~process_crew();

    /// @throws std::runtime_error if one has ended
    [[nodiscard]] pace run_round(std::chrono::milliseconds duration);

private:
    struct process {
        pid_t id = -1;
        int to = -1;
        int from = -1;
    };

    std::vector<process> all_;
};

/// The main of such a process: rounds as standard input asks for them, until it ends.
void run_as_member(const crew_member& who);

}  // namespace bench
