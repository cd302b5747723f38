#pragma once

#include "fault/frame.hpp"
#include "stress/crew.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fault {

using stress::micros;

inline duration micros_to_duration(micros time) {
    return std::chrono::microseconds{time};
}

/// How a holder's process (holder.cpp) is started.
struct holder_role {
    std::string name;
    milliseconds ttl;
    milliseconds poll{500};
    milliseconds heartbeat{0};  ///< 0: the default
    /// The table of writes, or none.
    std::string table = {};
    /// The shortest stop that the process detects.
    milliseconds gap{std::chrono::hours{1}};
    std::vector<std::string> environment = {};
};

[[nodiscard]] stress::role role_of(const holder_role& part);

/// A holder's log.
struct holder_diary {
    std::int64_t token = 0;
    rowlock::session_id session{};
    micros called = 0;
    micros acquired = 0;
    micros woke = 0;  ///< 0: never
    bool held_on_waking = false;
    micros lost = 0;           ///< 0: never
    std::string fenced_write;  ///< the result of the last one
    std::string end;           ///< of the release; empty: not yet
    bool held_at_the_end = false;
    struct tick {
        micros boot = 0;
        micros wall = 0;
        bool held = false;
    };
    std::vector<tick> ticks;
};
[[nodiscard]] holder_diary read_diary(const std::string& log);

/// Holders' processes on one database, all holding when this returns.
class holders {
public:
    holders(support::lock_database& database, const std::vector<holder_role>& parts);

    [[nodiscard]] stress::member& operator[](std::size_t i) { return *crew_.members().at(i); }
    [[nodiscard]] holder_diary diary(std::size_t i) const {
        return read_diary(crew_.members().at(i)->log());
    }
    [[nodiscard]] std::size_t size() const { return crew_.members().size(); }
    /// Sends SIGSTOP. On SQLite at a moment in which the process does not write: one that stops
    /// during a write blocks all others meanwhile. From any thread.
    void pause(std::size_t i);
    /// Closes its input, at which it releases and ends.
    void end(std::size_t i);

private:
    support::lock_database& database_;
    stress::crew crew_;
    std::mutex mutex_;
};

/// Waits until there are that many queue entries. Throws if that takes too long.
void await_places(support::lock_database& database, int count);

/// A table into which holders write, with a row for each write. The destructor drops it.
class write_table {
public:
    explicit write_table(support::lock_database& database);
    write_table(const write_table&) = delete;
    write_table& operator=(const write_table&) = delete;
    ~write_table();

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    void write(char kind, const std::string& name, std::int64_t token);
    /// The number of writes of one kind that follow one with a greater token.
    [[nodiscard]] int stale(char kind);

private:
    support::lock_database& database_;
    std::string name_;
};

}  // namespace fault
