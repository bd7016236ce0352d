/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* studio_project: the project of a link: found, checked, or made once.
 *
 * A project that the user names keeps its config. Fields without a control of the same name and
 * kind are left out of the predictions. A new project gets a config for all fields.
 *
 * A new project has a marker in its description. The link has the marker before the project is
 * made, and finds the project by it after a lost answer or a kill.
 *
 * Thread: one.
 * Memory: none. */

#include "label_studio/studio_push.h"

/* After OK the link has the project and the form. */
enum err studio_project(struct studio *studio, struct link *link, struct pairs *pairs,
                        const struct studio_push_wish *wish, struct error *error) MUST_CHECK;
