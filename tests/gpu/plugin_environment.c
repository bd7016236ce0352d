/* SPDX-License-Identifier: Apache-2.0 */

/* plugin_environment: variables for a plugin of the tests from a file next to it, for tests of
 * whole servers: an engine process gets none of the server's.
 *
 * The file is the plugin's path with ".env" behind it: NAME=value per line. With a line "once" it
 * is removed when it is read, so the engine that is started next has no fault. It is read as the
 * plugin is loaded, before the sandbox. */

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void read_environment(void) {
    static const int here;
    char path[PATH_MAX], line[256];
    Dl_info info;
    if (!dladdr(&here, &info)) return;
    (void)snprintf(path, sizeof path, "%s.env", info.dli_fname);
    FILE *file = fopen(path, "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *equals = strchr(line, '=');
        if (strcmp(line, "once") == 0) (void)unlink(path);
        if (!equals) continue;
        *equals = '\0';
        (void)setenv(line, equals + 1, 1);
    }
    (void)fclose(file);
}
