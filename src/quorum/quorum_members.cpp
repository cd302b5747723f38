#include "quorum/quorum_members.hpp"

#include "base/require.hpp"
#include "quorum/quorum_ballot.hpp"
#include <rowlock/error.hpp>

#include <algorithm>

namespace rowlock::detail {
void require_count(std::size_t members) {
    require(members >= 3 && members <= protocol::quorum_ballot::most_stores,
            "a quorum has 3 to 9 members");
}

std::string member_at(std::size_t position) {
    return "member " + std::to_string(position + 1);
}

bool quorum_members::learn(std::size_t position, const standing& seen) {
    if (!seen.row) {
        throw error{errc::conflict, member_at(position) +
                                        " is in no quorum: run `rowlock quorum init`, or "
                                        "`rowlock quorum readmit` if it was replaced"};
    }
    if (seen.server.empty()) {
        throw error{
            errc::unsupported,
            member_at(position) + " does not tell which server it is, and may be a standby"};
    }
    const auto& row = *seen.row;
    const std::lock_guard lock{mutex_};
    if (current_ && row.quorum != current_->quorum) {
        throw error{errc::conflict, member_at(position) + " is in another quorum than the others"};
    }
    if (row.members.size() != count_) {
        throw error{errc::invalid_options, "the quorum has " + std::to_string(row.members.size()) +
                                               " members, and this client names " +
                                               std::to_string(count_)};
    }
    // Only what a member that votes knows: a readmission that was broken off changes nothing.
    const bool votes = row.ready_for == seen.server;
    const bool rises = votes && (!current_ || row.epoch > current_->epoch);
    if (rises) current_ = row;
    const auto& known = current_ ? *current_ : row;
    if (row.epoch == known.epoch && row.members != known.members) {
        throw error{errc::conflict, member_at(position) +
                                        " and another one know different members "
                                        "under one epoch: readmit it"};
    }
    if (known.members.at(position) != seen.server) {
        const bool elsewhere = std::ranges::find(known.members, seen.server) != known.members.end();
        throw error{elsewhere ? errc::invalid_options : errc::conflict,
                    elsewhere ? member_at(position) +
                                    " is another one in the quorum: name the members in "
                                    "the same order everywhere"
                              : member_at(position) +
                                    " is another server than the one that voted there, "
                                    "such as a promoted standby or a restored backup: run "
                                    "`rowlock quorum readmit`"};
    }
    if (!votes || row.epoch < known.epoch) {
        throw error{errc::conflict, member_at(position) +
                                        " may not vote yet: run `rowlock quorum readmit`, or "
                                        "`rowlock quorum init` again if it only missed a change"};
    }
    return rises;
}

void quorum_members::expect(const protocol::quorum_membership& known) {
    const std::lock_guard lock{mutex_};
    if (known.members.size() == count_) current_ = known;
}

std::optional<protocol::quorum_membership> quorum_members::current() const {
    const std::lock_guard lock{mutex_};
    return current_;
}

bool quorum_members::includes(std::size_t position, const std::string& server) const {
    const std::lock_guard lock{mutex_};
    return current_ && current_->members.at(position) == server;
}

}  // namespace rowlock::detail
