#include "transaction/rows/row_sessions.hpp"

#include "sql/source_shared.hpp"
#include <rowlock/error.hpp>

namespace rowlock::detail {
namespace {

// How long to keep connections left over from a burst of work; well under the usual idle limits of
// firewalls and servers.
constexpr std::chrono::minutes keep_idle{1};

}  // namespace

std::shared_ptr<row_sessions> row_sessions::of(const sql::connection_source& source) {
    auto& shared = *source.shared_;
    const auto made_in = shared.made_in.load();
    if (made_in != 0 && made_in != base::fork_generation() + 1) {
        throw error{errc::wrong_process,
                    "row sessions of this connection source belong to the parent process: open "
                    "another source after fork()"};
    }
    const std::lock_guard lock{shared.mutex};
    if (!shared.rows) {
        auto bare = source;
        bare.shared_.reset();  // the pool must not keep its own owner
        shared.rows = std::make_shared<row_sessions>(std::move(bare));
        shared.made_in = base::fork_generation() + 1;
    }
    return shared.rows;
}

row_sessions::row_sessions(sql::connection_source bare)
    : pool_{
          {.connect = [bare = std::move(bare)](sql::deadline until) { return bare.connect(until); },
           .when_full = "as many row sessions as this connection source may have are open: end one "
                        "sooner, or raise max_sessions",
           .on_broken = {},
           .keep_idle = keep_idle}} {}

row_sessions::~row_sessions() {
    if (fork_.in_child()) pool_.abandon();
}

}  // namespace rowlock::detail
