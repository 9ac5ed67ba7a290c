// The time of this browser, in steps of a second, for what is shown relative to it.

class Clock {
  now = $state(Date.now())

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = Date.now()
    }, 1000)
  }
}

export const clock = new Clock()
