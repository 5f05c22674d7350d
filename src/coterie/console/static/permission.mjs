// The permission to write: whether this browser has it, and the dialog that asks for the token.

import { enterToken, mayWrite } from './api.mjs'
import { h, notice, replace } from './dom.mjs'

export function showPermission() {
  const place = document.getElementById('permission')
  if (mayWrite()) {
    replace(place, h('span', { class: 'quiet small' }, 'May start and stop runs'))
    return
  }
  replace(place, h('button', { type: 'button', class: 'small', onclick: askForToken }, 'Enter token'))
}

export function askForToken() {
  const input = h('input', { type: 'password', autocomplete: 'off', required: true, id: 'token', name: 'token' })
  const problem = h('div', {})
  const dialog = h('dialog', { 'aria-labelledby': 'token-title' })
  const form = h('form', { method: 'dialog' },
    h('h2', { id: 'token-title' }, 'Permission to start and stop runs'),
    h('label', { for: 'token' }, 'The token that coterie console printed in the terminal'),
    input, problem,
    h('div', { class: 'buttons' },
      h('button', { class: 'primary', type: 'submit' }, 'Enter'),
      h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel')))
  form.addEventListener('submit', async (event) => {
    event.preventDefault()
    try {
      await enterToken(input.value)
      dialog.close()
    } catch (error) {
      replace(problem, notice(error.message, 'bad'))
    }
  })
  dialog.addEventListener('close', () => dialog.remove())
  dialog.append(form)
  document.body.append(dialog)
  dialog.showModal()
}

/** A button that changes something: without permission it asks for the token first. */
export function writeButton(text, action, attributes = {}) {
  const button = h('button', { type: 'button', ...attributes }, text)
  button.addEventListener('click', async () => {
    if (!mayWrite()) {
      askForToken()
      return
    }
    button.disabled = true
    try {
      await action()
    } finally {
      button.disabled = false
    }
  })
  return button
}
