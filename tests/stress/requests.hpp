#pragma once

#include "stress/history.hpp"
#include <rowlock/history.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

/// Rules for requests of several leases at once. Each request has a note of its own, which its
/// leases show in the tables.
namespace stress {

/// The note of the request `number` of one thread for so many leases.
[[nodiscard]] std::string note_of_request(std::size_t slot, std::int64_t number, std::size_t size);

/// What a request has in the tables at one moment.
struct holding {
    std::int64_t leases = 0;  ///< at least 1
    bool waits = false;       ///< has a queue entry of the same session
};
/// Of all requests that hold something: by the session in which they were granted, and their notes.
/// A request whose grants came too late is repeated, with a new session.
using holdings = std::map<std::pair<std::int64_t, std::string>, holding>;

/// No request holds a part of its leases while it waits for another, or is granted more of them
/// later.
class held_parts {
public:
    /// Takes what one statement saw, after what another saw before.
    void see(const holdings& now);
    /// One for each request.
    [[nodiscard]] violations found() const;

private:
    holdings before_;
    std::map<holdings::key_type, std::string> found_;
};

/// All leases of a request are granted, or none, whatever became of its client.
class granted_parts {
public:
    void see(const rowlock::history_record& one);
    [[nodiscard]] violations found() const;
    [[nodiscard]] std::size_t requests() const noexcept { return grants_.size(); }

private:
    std::map<std::string, std::map<std::string, int>> grants_;  ///< by note, then name
};

/// Counts in how many of its turns, in a row, no request was granted.
class standstill {
public:
    void turn(std::int64_t grants) noexcept {
        turns_ = grants == grants_ ? turns_ + 1 : 0;
        grants_ = grants;
        longest_ = std::max(longest_, turns_);
    }
    [[nodiscard]] int longest() const noexcept { return longest_; }

private:
    std::int64_t grants_ = 0;
    int turns_ = 0;
    int longest_ = 0;
};

}  // namespace stress
