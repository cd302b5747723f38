#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

/// The interface of a driver to the contract suite, driver_test.cpp. A fixture is a struct of
/// static members. Its header includes no database library, so that all of them fit in one list.
namespace contract {

/// A handle of the database library, opened and owned by the test as an application would, and
/// connection_refs over it. Destroying it closes the handle.
class borrowed_handle {
public:
    borrowed_handle() = default;
    borrowed_handle(const borrowed_handle&) = delete;
    borrowed_handle& operator=(const borrowed_handle&) = delete;
    virtual ~borrowed_handle() = default;

    [[nodiscard]] virtual std::unique_ptr<rowlock::sql::connection> ref() = 0;
    /// Runs one statement on the handle itself, without the driver. Returns the first cell, if any.
    virtual std::string run(const std::string& text) = 0;
};

/// The documented differences between drivers.
struct driver_limits {
    /// A server with passwords, other connections and a network in between.
    bool server = true;
    /// A call on rowlock's own connection returns this long after its deadline at the latest,
    /// whatever the server does. nullopt: neither promised nor tested.
    std::optional<std::chrono::milliseconds> deadline_slack = std::chrono::seconds{1};
    /// The same for connect().
    std::optional<std::chrono::milliseconds> connect_slack = std::chrono::seconds{1};
    /// Text parameters may hold a NUL byte. If not, they are refused.
    bool nul_in_text = true;
    /// A prepared `select *` sees a new column at once. If not, one call fails with outcome_unknown
    /// and the next sees it.
    bool survives_new_columns = true;
    /// Statements are prepared: the first execution costs this many round trips, later ones one.
    std::uint64_t first_round_trips = 2;
};

/// The parts to change in the address of the test server.
struct server_change {
    std::optional<std::string> password = {};
    std::optional<std::uint16_t> port = {};  ///< a port of 127.0.0.1
    std::optional<std::string> database = {};
};

template <typename F>
concept driver_fixture = requires(const server_change& change) {
    { F::name } -> std::convertible_to<const char*>;
    { F::speaks } -> std::convertible_to<rowlock::sql::dialect>;
    { F::limits } -> std::convertible_to<driver_limits>;
    /// Whether the server is available. If not, the test case was skipped or has failed
    /// (support::url_of).
    { F::available() } -> std::same_as<bool>;
    { F::source() } -> std::same_as<rowlock::sql::connection_source>;
    { F::borrow() } -> std::same_as<std::unique_ptr<borrowed_handle>>;
    /// The same over TCP, with a change. Only called if limits.server.
    { F::source_with(change) } -> std::same_as<rowlock::sql::connection_source>;
    { F::server_port() } -> std::same_as<std::uint16_t>;
};

}  // namespace contract
