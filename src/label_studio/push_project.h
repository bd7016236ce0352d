/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* push_project: the project of a link: found, checked, or made once.
 *
 * A project that the user names keeps its config. Fields of the answer without a control of their
 * name and kind there are left out of the predictions. A new project gets a config for all fields.
 *
 * A new project carries a marker in its description, which is in the link before the project is
 * made: after a lost answer or a kill the project is found by it.
 *
 * Thread: one.
 * Memory: none. */

#include "label_studio/push.h"

/* After OK the link has the project and the form. */
enum err push_project(struct studio *studio, struct link *link, struct pairs *pairs,
                      const struct push_wish *wish, struct error *error) MUST_CHECK;
