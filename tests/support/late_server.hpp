#pragma once

#include "support/own_server.hpp"
#include <rowlock/sql/connection.hpp>

#include <memory>
#include <optional>
#include <string>

namespace support {

/// A MariaDB (MySQL in a run for that) of a test's own, with our tables, whose log can be held
/// back: what is committed then is shown to others, its commit does not return, and a crash takes
/// it back.
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

    /// Until let_log_go(), a crash, or the end of what is returned: a case that fails must not
    /// leave the server stuck for the next one.
    [[nodiscard]] std::shared_ptr<void> hold_log() const;
    void let_log_go() const;
    /// SIGKILL, and another start; the log is not held any more.
    void crash_and_start();

private:
    server_folder folder_;  ///< outlives the server
    std::unique_ptr<own_server> server_;
};

}  // namespace support
