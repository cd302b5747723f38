#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace rowlock::sql {

/// @addtogroup connections
/// @{

/// A connection that forwards every call to another one. Derive from it to log or count statements,
/// or to make them slow or fail in a test, and override only what that needs. All else behaves as
/// without it: wake-ups, transactions in one round trip, and what later versions add to
/// sql::connection.
///
///     class logging final : public rowlock::sql::forwarding_connection {
///     public:
///         using forwarding_connection::forwarding_connection;
///         rowlock::sql::result execute(const rowlock::sql::statement& what,
///                                      std::span<const rowlock::sql::value> parameters,
///                                      rowlock::sql::deadline until) override {
///             std::clog << what.text() << '\n';
///             return forwarding_connection::execute(what, parameters, until);
///         }
///     };
///
///     const auto source = rowlock::open(url).wrapped([](auto inner) {
///         return std::make_unique<logging>(std::move(inner));
///     });
///
/// Statements are sent by execute(), query(), transact() and post(), and by listen() of what
/// notifications() returns. An override of execute() and query() sees all but the last if
/// transact() returns nullopt and post() returns false: the caller then sends each statement alone,
/// which costs round trips.
///
/// What the library learns about the connection, and the settings that it will restore, belong to
/// the inner connection. Threads and errors as sql::connection; no round trip of its own.
class forwarding_connection : public connection {
public:
    /// @throws error errc::invalid_options for a null pointer
    explicit forwarding_connection(std::unique_ptr<connection> inner);
    /// Forwards to a connection of the caller's, such as a connection_ref, which must outlive this
    /// object.
    explicit forwarding_connection(connection& inner);
    ~forwarding_connection() override;

    [[nodiscard]] dialect speaks() const noexcept override;
    result execute(const statement& what, std::span<const value> parameters,
                   deadline until) override;
    result query(std::string_view text, deadline until) override;
    std::optional<bool> transact(std::span<const step> steps, std::string_view afterwards,
                                 deadline until) override;
    bool post(const statement& what, std::span<const value> parameters, deadline until,
              posted_answer on_answer) override;
    [[nodiscard]] bool alive() const noexcept override;
    void discard() noexcept override;
    [[nodiscard]] bool discarded() const noexcept override;
    [[nodiscard]] bool keeps_session_state() const noexcept override;
    [[nodiscard]] transaction_state transaction() const noexcept override;
    [[nodiscard]] int socket() const noexcept override;
    [[nodiscard]] sql::notifications* notifications() noexcept override;
    [[nodiscard]] std::int64_t announced_process() const noexcept override;
    [[nodiscard]] std::uint64_t round_trips() const noexcept override;

protected:
    [[nodiscard]] connection& inner() noexcept { return inner_; }  ///< where calls are forwarded to
    [[nodiscard]] const connection& inner() const noexcept { return inner_; }  ///< likewise

private:
    std::unique_ptr<connection> owned_;  ///< null if the caller owns the inner connection
    connection& inner_;
};

/// @}

}  // namespace rowlock::sql
