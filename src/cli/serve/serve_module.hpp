#pragma once

#include "cli/commands.hpp"

/// The server is a module, as drivers are: other commands do not pay for its library when they
/// start. A module exports a serve_module named `rowlock_serve` and takes the rest of the tool from
/// the executable that loads it.
namespace rowlock::cli {

struct serve_module {
    const char* version;  ///< of the rowlock it belongs to
    int (*serve)(const serve_options& options);
};

}  // namespace rowlock::cli

extern "C" const rowlock::cli::serve_module rowlock_serve;
