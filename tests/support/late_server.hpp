#pragma once

#include "support/own_server.hpp"
#include <rowlock/sql/connection.hpp>

#include <memory>
#include <optional>
#include <string>

namespace support {

/// A test's own MariaDB (MySQL in a run for that), with rowlock's tables, whose log can be held
/// back. Others see what is committed then, its commit does not return, and a crash undoes it.
class late_server {
public:
    late_server();
    late_server(const late_server&) = delete;
    late_server& operator=(const late_server&) = delete;
    ~late_server();

    /// False if the server's programs are missing.
    [[nodiscard]] bool there() const noexcept { return server_ != nullptr; }
    [[nodiscard]] const std::string& url() const noexcept { return server_->url(); }
    [[nodiscard]] rowlock::sql::connection_source source() const;

    /// Holds the log back until let_log_go(), a crash, or the end of the returned object, so that a
    /// failed case does not leave the server blocked for the next one.
    [[nodiscard]] std::shared_ptr<void> hold_log() const;
    void let_log_go() const;
    /// Kills the server by SIGKILL and starts it again. The log is no longer held.
    void crash_and_start();

private:
    server_folder folder_;  ///< outlives the server
    std::unique_ptr<own_server> server_;
};

}  // namespace support
