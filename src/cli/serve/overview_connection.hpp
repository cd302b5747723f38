#pragma once

#include "cli/database.hpp"
#include "lock/protocol/session/session_protocol.hpp"
#include "view/overview.hpp"

#include <cstdint>
#include <memory>

namespace rowlock::cli::serving {

/// Reads what pages show, on a connection that is opened anew after a failure. Used by one thread
/// at a time.
class overview_connection {
public:
    /// Does not connect yet.
    explicit overview_connection(const database& in);

    /// @throws error
    [[nodiscard]] view::snapshot locks();
    [[nodiscard]] view::sessions_seen sessions();

private:
    template <typename Action>
    auto run(Action action);

    /// Rows of one table that are shown.
    static constexpr std::int64_t most = 50'000;

    const database& in_;
    const sql::statement_set statements_;
    const std::unique_ptr<const protocol::session_protocol> protocol_;
    std::unique_ptr<sql::connection> db_{};
};

}  // namespace rowlock::cli::serving
