#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

/// The workers' messages, one character each.
struct tally {
    static constexpr char ready = 'r', sold = '.', conflict = '!', again = '+';
    int sales = 0, conflicts = 0, retries = 0;
};

/// Worker processes: copies of this program that start selling at the same time.
class crew {
public:
    /// @param arguments of worker number i
    crew(int workers, const std::function<std::vector<std::string>(int)>& arguments);
    crew(const crew&) = delete;
    crew& operator=(const crew&) = delete;
    ~crew();

    /// Opens the gate when all are ready, and counts until all have ended. @return seconds
    double run(tally& told, const std::function<void(const tally&)>& progress);

private:
    std::vector<pid_t> workers_;
    int gate_ = -1;
    int news_ = -1;
};

/// Called by a worker: reports that it is ready and waits for the gate. False if the parent ended.
bool wait_for_gate();
/// Called by a worker: sends a message to the parent.
void tell(char what);
/// Set by SIGINT and SIGTERM.
[[nodiscard]] bool interrupted();
void catch_interrupts();
