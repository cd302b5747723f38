// `rowlock serve`, which is in a module where drivers are.

#include "cli/commands.hpp"
#include "cli/serve/serve_module.hpp"

#ifdef ROWLOCK_DRIVER_MODULES
#include "cli/module_file.hpp"

#include <string>
#endif

namespace rowlock::cli {

int serve(const serve_options& options) {
#ifndef ROWLOCK_HAS_SERVE
    static_cast<void>(options);
    throw failure{misconfigured, "this rowlock was built without `serve` (ROWLOCK_SERVE)"};
#elif defined ROWLOCK_DRIVER_MODULES
    const std::string file = "rowlock-serve.so";
    return module_in<serve_module>(load_module(folder_of_modules(), file), "rowlock_serve", file)
        .serve(options);
#else
    return rowlock_serve.serve(options);
#endif
}

}  // namespace rowlock::cli
